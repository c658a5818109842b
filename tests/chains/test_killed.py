"""A run killed by SIGKILL at any instant and resumed gives, bit for bit, the samples of an uninterrupted one."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from runs import EVERY, SMALL, content, killed, killed_at_write, reference

import maskropolis
from maskropolis.kernels import KERNELS

ANNEALED = {"temperature": 2.0, "final_temperature": 0.5}


def _start_or_resume(model: Any, folder: Path, **settings: Any) -> Any:
    """As a user would: resume if there is a run, else start it."""
    if (folder / "run.json").exists():
        return maskropolis.resume(folder, model=model)
    return maskropolis.sample(model, out=folder, checkpoint_every=EVERY, **settings)


def _survive(model: Any, folder: Path, kills: int, settings: dict[str, Any]) -> None:
    """Kill at `kills` random instants, then let it end; asserts equality with a run that was left alone."""
    began = time.perf_counter()
    expected = reference(model, **settings)
    duration, generator, hits = time.perf_counter() - began, random.Random(repr(settings)), 0
    while hits < kills:
        hits += killed(lambda: _start_or_resume(model, folder, **settings), generator.uniform(0.02, duration))
        if hits < kills and folder.is_dir() and _is_finished(folder):
            shutil.rmtree(folder)
    run = _start_or_resume(model, folder, **settings)
    assert run.status == "finished"
    assert content(run) == expected
    trace = run.trace().to_pandas()
    assert not trace.duplicated(["step", "chain"]).any()
    assert trace.step.nunique() == settings["steps"]
    assert trace.accepted.mean() == pytest.approx(run.acceptance_rate)


def _is_finished(folder: Path) -> bool:
    return (folder / "run.json").exists() and maskropolis.open_run(folder).status == "finished"


@pytest.mark.parametrize("kernel", ["single-site", "tempering"])
def test_killed_at_a_random_instant(tiny_bert: Any, tmp_path: Path, kernel: str) -> None:
    _survive(tiny_bert, tmp_path / "run", 1, SMALL | {"steps": 40, "kernel": kernel})


@pytest.mark.parametrize("write", [1, 5, 8, 10])
def test_killed_at_a_write(tiny_bert: Any, tmp_path: Path, write: int) -> None:
    settings = SMALL | {"steps": 20}
    folder = tmp_path / "run"
    assert killed_at_write(lambda: _start_or_resume(tiny_bert, folder, **settings), write)
    assert content(_start_or_resume(tiny_bert, folder, **settings)) == reference(tiny_bert, **settings)


@pytest.mark.slow
def test_killed_at_every_write(tiny_bert: Any, tmp_path: Path) -> None:
    """Each write of a run of three checkpoints in turn, and one more kill while resuming."""
    settings = SMALL | {"steps": 30, "kernel": "block:k=2"}
    expected, write = reference(tiny_bert, **settings), 0
    while True:
        write += 1
        folder = tmp_path / f"run-{write}"
        if not killed_at_write(lambda at=folder: _start_or_resume(tiny_bert, at, **settings), write):
            break
        killed_at_write(lambda at=folder: _start_or_resume(tiny_bert, at, **settings), 1 + write % 7)
        assert content(_start_or_resume(tiny_bert, folder, **settings)) == expected
    assert write > 25


@pytest.mark.slow
@pytest.mark.parametrize("energy", ["norm", "raw"])
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_killed_often(tiny_bert: Any, tmp_path: Path, kernel: str, energy: str) -> None:
    """Three kills for each kernel and energy, with a falling temperature."""
    settings = SMALL | {"kernel": kernel, "energy": energy, "steps": 100} | ANNEALED
    _survive(tiny_bert, tmp_path / "run", 3, settings)
