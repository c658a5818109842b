"""Chains that are gone on with where they were stopped, and what is measured of the states they leave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import common
import numpy as np

import maskropolis
from maskropolis.evaluation.intervals import Estimate, Resampling, of_sums
from maskropolis.evaluation.judging.judge import Judge
from maskropolis.runs.folder import Run
from maskropolis.targets.energy import NORM

RESAMPLING = Resampling()


@dataclass(frozen=True)
class Scale:
    """How much is computed; `quick` is for a trial that shows nothing but that everything works."""

    name: str = "full"
    passages: int = 1500
    held_out: int = 150
    steps: int = 300
    plain: int = 24
    chains: int = 8
    keyword_chains: int = 4
    reaction_chains: int = 3
    reactions: int = 8
    length: int = 12
    burn_in: int = 6


QUICK = Scale(
    "quick", passages=40, held_out=8, steps=3, plain=2, chains=1, keyword_chains=1, reaction_chains=1, reactions=2,
    length=4, burn_in=0,
)  # fmt: skip


@dataclass
class State:
    """A kept state: its text, token ids, the chain that it comes from, and what was measured of it."""

    text: str
    ids: list[int]
    chain: str
    label: str = ""
    values: dict[str, float] = field(default_factory=dict)


def chains(model: Any, folder: Path, **settings: Any) -> Run:
    """A run in `folder`: started, gone on with, or finished already. Ctrl-C and SIGTERM end the program here."""
    if (folder / "run.json").exists():
        run = maskropolis.resume(folder, model=model)
    else:
        run = maskropolis.sample(model, out=folder, **settings)
    if run.interrupted:
        raise SystemExit(128 + (run.stopped_by or 0))
    return run


def states(run: Run, label: str = "") -> list[State]:
    """The kept states of a run."""
    return [State(r["text"], list(r["token_ids"]), f"{run.path.name}/{r['chain']}", label) for r in run]


def add_energies(model: Any, found: Sequence[State], end: int | None = None) -> None:
    """Adds `energy`, E_norm of the masked language model alone, and `free`, the tokens it sums over: all, or those
    before the first token `end`."""
    codec = model.codec
    for first in range(0, len(found), 64):
        part = found[first : first + 64]
        free = []
        for state in part:
            stop = len(state.ids) if end is None else state.ids.index(end)
            free.append([at < stop and token not in codec.special for at, token in enumerate(state.ids)])
        energy = NORM.evaluate(model, codec.pad([state.ids for state in part], free)).energy.tolist()
        for state, value, mask in zip(part, energy, free, strict=True):
            state.values |= {"energy": value, "free": float(sum(mask))}


def add_judgements(judge: Judge, found: Sequence[State]) -> None:
    """Adds `surprise`, −log p under the judge, and `judged`, the tokens it sums over."""
    for state, one in zip(found, judge.judge([state.text for state in found]), strict=True):
        state.values |= {"surprise": -one.log_likelihood, "judged": float(one.tokens)}


def estimate(found: Sequence[State], above: str, below: str | None = None, exponential: bool = False) -> dict[str, Any]:
    """Σ `above` / Σ `below` (the number of states by default) with its interval by resampling chains; {} of nothing."""
    if not found:
        return {}
    numerator = [state.values[above] for state in found]
    denominator = [1.0 if below is None else state.values[below] for state in found]
    made = of_sums(
        numerator, denominator, groups_of(found), RESAMPLING, np.exp if exponential else (lambda value: value)
    )
    return rounded(made)


def rounded(made: Estimate) -> dict[str, float | None]:
    """As results.json holds an estimate; null where there is no interval."""
    values = {"value": made.value, "low": made.low, "high": made.high}
    return {name: round(value, 4) if math.isfinite(value) else None for name, value in values.items()}


def groups_of(found: Iterable[State]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(state.chain, len(numbers)) for state in found]


def fluency(found: Sequence[State]) -> dict[str, Any]:
    """Perplexity under the judge, energy a token, and how many states and chains they come from."""
    return {
        "perplexity": estimate(found, "surprise", "judged", exponential=True),
        "energy": estimate(found, "energy", "free"),
        "states": len(found),
        "chains": len(set(groups_of(found))),
    }


class Judges:
    """The causal judge of fluency, loaded when it is first asked."""

    @cached_property
    def language(self) -> Judge:
        return Judge.load(common.bundled_judge())
