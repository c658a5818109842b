"""The loop around the driver: records of kept states, wall time, the live display, stop signals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maskropolis.chains.driver import Tick
from maskropolis.chains.preparation import Prepared
from maskropolis.chains.samples import records_of
from maskropolis.errors import NumericalError
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import Energy, energy_by_name


class Step(NamedTuple):
    """One step of a run.

    Attributes:
        tick: what the driver gave.
        seconds: wall time that it took.
        records: of the states, if they are kept; else empty.
        notices: what happened that the driver does not tell.
    """

    tick: Tick
    seconds: float
    records: list[dict[str, Any]]
    notices: tuple[str, ...]


def steps(prepared: Prepared) -> Iterator[Step]:
    """Step to the end of the plan. Raises `NumericalError` when no chain is left."""
    model = prepared.model
    budget, before = model.budget.tokens, time.perf_counter()
    for tick in prepared.ticks():
        seconds = time.perf_counter() - before
        records = kept_records(prepared, tick) if tick.kept else []
        notices: tuple[str, ...] = ()
        if model.budget.tokens < budget:
            notices = (f"memory ran out at step {tick.step}; token budget {budget} → {model.budget.tokens}",)
            budget = model.budget.tokens
        yield Step(tick, seconds, records, notices)
        before = time.perf_counter()


def kept_records(prepared: Prepared, tick: Tick) -> list[dict[str, Any]]:
    """The records of a kept step. Where the kernel tracks no energy, it is computed here."""
    energy, sequences = tick.state.energy, tick.state.sequences
    if tick.state.evaluation is None:
        wanted = prepared.kernel.energy or energy_by_name(prepared.config.energy)
        energy = energies(prepared.model, wanted, sequences)
    return records_of(tick, prepared.model.codec.decode(sequences), energy)


def energies(model: MaskedLM, energy: Energy, sequences: Sequences) -> Tensor:
    """[C] float64, NaN where the model's logits are NaN or infinite."""
    found = torch.full((len(sequences),), torch.nan, dtype=torch.float64, device=sequences.device)
    left = torch.arange(len(sequences), device=sequences.device)
    while len(left):
        try:
            found[left] = energy.evaluate(model, sequences.rows(left)).energy
            break
        except NumericalError as error:
            if not error.chains:
                break
            good = torch.ones(len(left), dtype=torch.bool, device=left.device)
            good[list(error.chains)] = False
            left = left[good]
    return found
