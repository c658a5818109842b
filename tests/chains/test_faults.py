"""Faults while sampling: memory runs out, logits become NaN, a run goes on for long."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from runs import EVERY, SMALL, at_step, content, parts, reference

import maskropolis
from maskropolis.chains.preparation import prepare
from maskropolis.chains.running import energies
from maskropolis.errors import NumericalError, RunError
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.sampling import SamplingConfig
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM

CPU_MESSAGE = (
    "[enforce fail at alloc_cpu.cpp:126] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
)


@pytest.fixture
def model() -> HuggingFaceMaskedLM:
    """A model of its own, to be broken."""
    import tiny

    return HuggingFaceMaskedLM(tiny.network("bert"), tiny.tokenizer(), name="broken-bert")


def _spoil(model: HuggingFaceMaskedLM, act: Callable[[Sequences, torch.Tensor], torch.Tensor]) -> None:
    """Let `act(sequences, logits)` have the last word on what the model returns."""
    honest = model.logits
    model.logits = lambda rows, at: act(rows, honest(rows, at))  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "error", [RuntimeError(CPU_MESSAGE), MemoryError(), torch.OutOfMemoryError("CUDA out of memory")]
)
def test_out_of_memory_halves_the_budget(model: HuggingFaceMaskedLM, tmp_path: Path, error: Exception) -> None:
    """The same chain: texts and token ids are equal, energies up to rounding."""
    expected = maskropolis.sample(model, **SMALL)
    budget = model.budget.tokens

    def small_machine(rows: Sequences, logits: torch.Tensor) -> torch.Tensor:
        if len(rows) > 3:
            raise error
        return logits

    _spoil(model, small_machine)
    run = maskropolis.sample(model, out=tmp_path / "run", checkpoint_every=EVERY, **SMALL)
    assert model.budget.tokens < budget
    assert run.texts == expected.texts and run.energy == pytest.approx(expected.energy, abs=1e-4)


def test_out_of_memory_on_the_way_is_told(
    model: HuggingFaceMaskedLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, full = maskropolis.sample(model, **SMALL), False

    def fill() -> None:
        nonlocal full
        full = True

    def shrinking_machine(rows: Sequences, logits: torch.Tensor) -> torch.Tensor:
        if full and len(rows) > 3:
            raise MemoryError
        return logits

    _spoil(model, shrinking_machine)
    at_step(monkeypatch, 25, fill)
    run = maskropolis.sample(model, out=tmp_path / "run", checkpoint_every=EVERY, **SMALL)
    assert any("memory ran out at step" in notice for notice in run.notices)
    assert run.checkpoint is not None and run.checkpoint.budget["tokens"] == model.budget.tokens
    assert run.texts == expected.texts


def test_out_of_memory_for_good(model: HuggingFaceMaskedLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, full = reference(model, **SMALL), False

    def fill() -> None:
        nonlocal full
        full = True

    def no_machine(rows: Sequences, logits: torch.Tensor) -> torch.Tensor:
        if full:
            raise MemoryError
        return logits

    budget = model.budget.tokens
    _spoil(model, no_machine)
    with monkeypatch.context() as patch:
        at_step(patch, 25, fill)
        with pytest.raises(RunError, match=r"memory ran out even for one model row.*maskropolis resume"):
            maskropolis.sample(model, out=tmp_path / "run", checkpoint_every=EVERY, **SMALL)
    full, model.budget.tokens = False, budget
    run = maskropolis.resume(tmp_path / "run", model=model)
    assert [record[2] for record in content(run)] == [record[2] for record in expected]


def _nan_for_chain_of_length(length: int, after: list[bool]) -> Callable[[Sequences, torch.Tensor], torch.Tensor]:
    """NaN in every row with `length` real tokens, once `after` is not empty."""

    def spoil(rows: Sequences, logits: torch.Tensor) -> torch.Tensor:
        bad = (rows.lengths == length) & bool(after)
        return logits.masked_fill(bad[:, None, None], torch.nan)

    return spoil


@pytest.mark.parametrize("kernel", ["single-site", "block", "gibbs", "tempering"])
def test_nan_stops_only_its_chain(
    model: HuggingFaceMaskedLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    """Chain 1 has 6 free tokens, chains 0 and 2 have 4. It stays stopped after resuming."""
    settings = SMALL | {"kernel": kernel}
    expected, after = reference(model, **settings), list[bool]()
    _spoil(model, _nan_for_chain_of_length(6 + 2, after))
    with monkeypatch.context() as patch:
        at_step(patch, 30, lambda: after.append(True))
        run = maskropolis.sample(model, out=tmp_path / "run", checkpoint_every=EVERY, **settings)
    [notice] = run.notices
    assert "NaN or infinite logits at step 3" in notice and "(chain 1); the other chains go on" in notice
    frame = run.to_pandas()
    assert frame[frame.chain == 1].step.max() <= 40 and frame[frame.chain != 1].step.max() == 60
    texts = {(record[0], record[1]): record[2] for record in expected}
    assert all(texts[repr(r["chain"]), repr(r["step"])] == repr(r["text"]) for r in run)
    after.clear()
    extended = maskropolis.resume(tmp_path / "run", steps=80, model=model).to_pandas()
    assert set(extended[extended.step > 60].chain) == {0, 2}


def test_nan_at_the_start(model: HuggingFaceMaskedLM, tmp_path: Path) -> None:
    """In the first evaluation and in the greedy fill, of one chain and of all."""
    expected = maskropolis.sample(model, **SMALL)
    _spoil(model, _nan_for_chain_of_length(6 + 2, [True]))
    for start in ("greedy", "random"):
        run = maskropolis.sample(model, out=tmp_path / start, **SMALL | {"start": start})
        assert run.notices == [
            "the model returned NaN or infinite logits at the start (chain 1); the other chains go on"
        ]
        assert set(run.to_pandas().chain) == {0, 2}
    assert maskropolis.sample(model, **SMALL).texts == [r["text"] for r in expected if r["chain"] != 1]
    with pytest.raises(NumericalError, match=r"at the start \(chain 0, 1\)"):
        prepare(model, SamplingConfig(lengths=(6,), chains=2))


def test_nan_everywhere_keeps_the_samples(
    model: HuggingFaceMaskedLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after: list[bool] = []
    _spoil(model, lambda rows, logits: torch.full_like(logits, torch.nan) if after else logits)
    at_step(monkeypatch, 30, lambda: after.append(True))
    with pytest.raises(RunError, match=r"at step 3\d \(chain .*no chain is left; what was sampled before is in"):
        maskropolis.sample(model, out=tmp_path / "run", checkpoint_every=EVERY, **SMALL)
    run = maskropolis.open_run(tmp_path / "run")
    assert run.status == "failed" and run.steps >= 30 and len(run) > 0


def test_energies_of_a_kernel_without_target(model: HuggingFaceMaskedLM) -> None:
    sequences = model.codec.encode(["the cat", "the cat sat"])
    _spoil(model, _nan_for_chain_of_length(2 + 2, [True]))
    assert energies(model, NORM, sequences).isnan().tolist() == [True, False]


@pytest.mark.slow
def test_memory_does_not_grow(model: HuggingFaceMaskedLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 000 steps of a run folder; resident memory after 2 000 steps against the end."""
    seen: list[int] = []

    def measure() -> None:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        seen.append(pages * 4)

    for step in range(2000, 10001, 2000):
        at_step(monkeypatch, step, measure)
    run = maskropolis.sample(model, out=tmp_path / "run", length=4, chains=4, burn_in=0, thin=0.25, steps=10_000)
    print(
        f"resident KiB at 2000, 4000, … steps: {seen}; {len(run)} samples, {len(list(parts(run.path, 'trace')))} parts"
    )
    assert len(run) == 40_000
    assert seen[-1] - seen[0] < 8 * 1024
