"""Run folders: what stops a run and what is said then, damage, locks, extension, changed models, reading meanwhile."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch
from runs import EVERY, SMALL, at_step, content, parts, reference

import maskropolis
from maskropolis.chains.tables import SAMPLES, TRACE
from maskropolis.errors import InputError, RunError
from maskropolis.records import files
from maskropolis.runs.lock import is_locked, locked


@pytest.fixture(scope="module")
def finished(tiny_bert: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    maskropolis.sample(tiny_bert, out=folder, checkpoint_every=EVERY, **SMALL)
    return folder


@pytest.fixture
def run_copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_same_samples_and_trace_as_in_memory(tiny_bert: Any, finished: Path) -> None:
    run, samples = maskropolis.open_run(finished), maskropolis.sample(tiny_bert, **SMALL)
    assert content(run) == content(samples)
    assert run.samples() == samples.samples()
    assert run.trace().drop(["seconds"]) == samples.trace().drop(["seconds"])
    assert run.samples().schema == SAMPLES and run.trace().schema == TRACE
    assert run.acceptance_rate == samples.acceptance_rate and run.rows == samples.rows
    assert run.trace()["rows"].to_numpy().sum() == pytest.approx(run.rows)
    assert run.signature == samples.signature and run.texts == samples.texts and run.energy == samples.energy
    assert [record["step"] for record in run.latest()] == [60 - (60 - run.burn_in) % run.thin] * 3


def test_outsiders_can_read_the_folder(finished: Path) -> None:
    description = json.loads((finished / "run.json").read_text())
    assert description["status"] == "finished" and description["config"]["seed"] == SMALL["seed"]
    assert len(pyarrow.parquet.read_table(finished / "samples")) == len(maskropolis.open_run(finished))
    assert len(pyarrow.parquet.read_table(finished / "trace")) == 3 * 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_signals_save_the_state(
    tiny_bert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as patch:
        at_step(patch, 33, lambda: signal.raise_signal(number))
        run = maskropolis.sample(tiny_bert, out=tmp_path / "run", checkpoint_every=EVERY, **SMALL)
    assert (run.status, run.steps, run.stopped_by, run.interrupted) == ("interrupted", 33, number, True)
    run = maskropolis.resume(tmp_path / "run", model=tiny_bert)
    assert run.status == "finished" and run.stopped_by is None
    assert content(run) == reference(tiny_bert, **SMALL)


def test_ctrl_c_in_memory_keeps_what_was_sampled(tiny_bert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at_step(monkeypatch, 33, lambda: signal.raise_signal(signal.SIGINT))
    samples = maskropolis.sample(tiny_bert, **SMALL)
    assert samples.interrupted and samples.stopped_by == signal.SIGINT and samples.steps == 33 and len(samples)


def test_exception_keeps_the_last_step(tiny_bert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("something else")

    with monkeypatch.context() as patch:
        at_step(patch, 26, fail)
        with pytest.raises(RuntimeError, match="something else") as caught:
            maskropolis.sample(tiny_bert, out=tmp_path / "run", checkpoint_every=EVERY, **SMALL)
    assert "the state after step 25 is safe" in caught.value.__notes__[0]
    assert maskropolis.open_run(tmp_path / "run").status == "failed"
    assert content(maskropolis.resume(tmp_path / "run", model=tiny_bert)) == reference(tiny_bert, **SMALL)


@pytest.mark.parametrize("write", [2, 9, 11, 13])
def test_full_disk(tiny_bert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int) -> None:
    flush, count = files._flush_to_disk, 0

    def full(path: Path) -> None:
        nonlocal count
        count += 1
        if count >= write:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_flush_to_disk", full)
        with pytest.raises(RunError, match=r"No space left on device.*maskropolis resume"):
            maskropolis.sample(tiny_bert, out=tmp_path / "run", checkpoint_every=EVERY, **SMALL)
    assert not list((tmp_path / "run").rglob(".*.partial"))
    assert content(maskropolis.resume(tmp_path / "run", model=tiny_bert)) == reference(tiny_bert, **SMALL)


@pytest.mark.parametrize("how", ["truncated", "one bit", "missing"])
@pytest.mark.parametrize(
    "name",
    ["checkpoint/000000060.json", "checkpoint/000000060.safetensors", "samples/part-000000060.parquet",
     "trace/part-000000030.parquet"],
)  # fmt: skip
def test_damage_is_named_and_mended(tiny_bert: Any, finished: Path, run_copy: Path, name: str, how: str) -> None:
    _damage(run_copy / name, how)
    expected = content(maskropolis.open_run(finished))
    if name.startswith(("samples", "trace")):
        run = maskropolis.open_run(run_copy)
        with pytest.raises(RunError, match=name):
            run.samples() if name.startswith("samples") else run.trace()
    run = maskropolis.resume(run_copy, model=tiny_bert)
    assert content(run) == expected and run.trace().num_rows == 180
    if (name, how) != ("checkpoint/000000060.json", "missing"):
        assert any(name in notice for notice in run.notices)


def _damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    else:
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])


def test_damaged_run_json_is_restored(tiny_bert: Any, finished: Path, run_copy: Path) -> None:
    _damage(run_copy / "run.json", "truncated")
    with pytest.raises(RunError, match=r"run\.json' is damaged"):
        maskropolis.open_run(run_copy)
    run = maskropolis.resume(run_copy, model=tiny_bert, steps=70)
    assert any("restored" in notice for notice in run.notices)
    assert content(run) == reference(tiny_bert, **SMALL | {"steps": 70})


def test_changed_configuration_is_refused(tiny_bert: Any, run_copy: Path) -> None:
    file = run_copy / "run.json"
    file.write_text(file.read_text().replace('"seed": 5', '"seed": 6'))
    with pytest.raises(RunError, match=r"'config' in .* was changed"):
        maskropolis.resume(run_copy, model=tiny_bert, steps=70)


def test_changed_weights_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    model_folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    maskropolis.sample(str(model_folder), out=tmp_path / "run", **SMALL | {"steps": 20})
    model = maskropolis.load(str(model_folder))
    with torch.no_grad():
        next(model.model.parameters()).add_(1e-3)
    model.model.save_pretrained(model_folder)
    with pytest.raises(RunError, match=r"the weights behind .* changed since"):
        maskropolis.resume(tmp_path / "run", steps=30)
    run = maskropolis.resume(tmp_path / "run", steps=30, model=str(tiny_folder))
    assert run.steps == 30 and str(model_folder) in run.signature


def test_extension_equals_a_longer_run(tiny_bert: Any, run_copy: Path) -> None:
    run = maskropolis.resume(run_copy, steps=95, model=tiny_bert)
    longer = maskropolis.sample(tiny_bert, **SMALL | {"steps": 95})
    assert content(run) == content(longer) and run.signature == longer.signature
    again = maskropolis.resume(run_copy, steps=95, model=tiny_bert)
    assert again.status == "finished" and content(again) == content(run)
    with pytest.raises(InputError, match="below the 95 steps already made"):
        maskropolis.resume(run_copy, steps=90, model=tiny_bert)


def test_second_process_is_refused(tiny_bert: Any, run_copy: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(run_copy / "run.lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        assert is_locked(run_copy)
        with pytest.raises(RunError, match="in use by"):
            maskropolis.resume(run_copy, steps=70, model=tiny_bert)
        with pytest.raises(RunError, match="in use by"):
            maskropolis.sample(tiny_bert, out=run_copy, overwrite=True, **SMALL)
    finally:
        holder.kill()
        holder.wait()
    assert maskropolis.resume(run_copy, steps=70, model=tiny_bert).steps == 70
    assert not is_locked(run_copy)


_HOLD = """
import fcntl, sys, time
f = open(sys.argv[1], "r+")
fcntl.flock(f, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_existing_folders(tiny_bert: Any, run_copy: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="already holds a run; go on with it by `maskropolis resume"):
        maskropolis.sample(tiny_bert, out=run_copy, **SMALL)
    (run_copy / "notes.txt").write_text("mine")
    run = maskropolis.sample(tiny_bert, out=run_copy, overwrite=True, **SMALL | {"steps": 20})
    assert run.steps == 20 and (run_copy / "notes.txt").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(RunError, match=r"not empty \('thesis.txt'\)"):
            maskropolis.sample(tiny_bert, out=other, overwrite=overwrite, **SMALL)
    for name, what in (("other/thesis.txt", "is a file"), ("no/where", "does not exist")):
        with pytest.raises(RunError, match=what):
            maskropolis.sample(tiny_bert, out=tmp_path / name, **SMALL)
    for verb in (maskropolis.open_run, maskropolis.resume):
        with pytest.raises(RunError, match="holds no run"):
            verb(other)
        with pytest.raises(RunError, match="does not exist"):
            verb(tmp_path / "nowhere")


def test_reading_while_it_runs(tiny_bert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def look() -> None:
        run = maskropolis.open_run(tmp_path / "run")
        seen.append((run.status, run.steps, content(run), len(run.trace())))
        assert len(pyarrow.parquet.read_table(tmp_path / "run" / "trace")) == 3 * 40

    at_step(monkeypatch, 45, look)
    run = maskropolis.sample(tiny_bert, out=tmp_path / "run", checkpoint_every=EVERY, **SMALL)
    [(status, steps, so_far, traced)] = seen
    assert (status, steps, traced) == ("running", 40, 120)
    assert so_far and so_far == content(run)[: len(so_far)]


def test_status_of_a_killed_run(run_copy: Path) -> None:
    file = run_copy / "run.json"
    file.write_text(file.read_text().replace('"finished"', '"running"'))
    assert maskropolis.open_run(run_copy).status == "killed"
    with locked(run_copy):
        assert maskropolis.open_run(run_copy).status == "running"


def test_write(finished: Path, tmp_path: Path) -> None:
    run = maskropolis.open_run(finished)
    run.write(str(tmp_path / "samples.jsonl"))
    records = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert content(records) == content(run)
    assert len(list(parts(finished, "trace"))) == 6
