"""How far chains move: acceptance by position, temperature and time; tokens changed; different sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maskropolis.convergence.histories import History
from maskropolis.convergence.rule import kernel_of

if TYPE_CHECKING:
    import pandas

_BINS = 40


@dataclass(frozen=True)
class Movement:
    """What the trace says of one `History`, after burn-in unless said otherwise.

    Attributes:
        acceptance: share of proposals accepted.
        by_position: the same for proposals that touched a position.
        by_temperature: (τ, share), the whole run; annealed temperatures are gathered into at most 40 bins.
        over_time: (last step of a bin, share) over the whole run.
        changed_per_sweep: tokens changed in a sweep, mean over chains.
        unique, kept: different sequences among the kept states, and how many were kept.
        rows, seconds: model rows and wall time, these chains' share.
    """

    acceptance: float
    by_position: dict[int, float]
    by_temperature: list[tuple[float, float]]
    over_time: list[tuple[int, float]]
    changed_per_sweep: float
    unique: int
    kept: int
    rows: float
    seconds: float


def movement(history: History, config: dict[str, Any]) -> Movement:
    """Measure one `History`; `config` says how many steps make a sweep."""
    settled = history.settled if len(history.settled) else history.trace
    rows = history.tokens.reshape(-1, history.tokens.shape[2])
    return Movement(
        acceptance=float(settled["accepted"].mean()),
        by_position=by_position(settled),
        by_temperature=_by_temperature(history.trace),
        over_time=over_time(history.trace),
        changed_per_sweep=float(settled["changed"].mean()) * steps_per_sweep(config, len(history.positions)),
        unique=len(np.unique(rows, axis=0)) if len(rows) else 0,
        kept=len(rows),
        rows=float(settled["rows"].sum()),
        seconds=float(settled["seconds"].sum()),
    )


def steps_per_sweep(config: dict[str, Any], free: int) -> int:
    """Steps in which each of `free` positions is visited once on average, for the kernel of a run."""
    return kernel_of(config).steps_per_sweep(free)


def by_position(trace: pandas.DataFrame) -> dict[int, float]:
    """Share accepted of the proposals that touched each position."""
    counts = trace["positions"].map(len).to_numpy()
    positions = np.concatenate(trace["positions"].to_list()) if len(trace) else np.empty(0, dtype=int)
    accepted = np.repeat(trace["accepted"].to_numpy(dtype=float), counts)
    return {int(t): float(accepted[positions == t].mean()) for t in np.unique(positions)}


def over_time(trace: pandas.DataFrame) -> list[tuple[int, float]]:
    """(last step, share accepted) of at most 40 stretches of equal length."""
    return [(int(end), share) for end, share in _binned(trace["step"].to_numpy(dtype=float), trace)]


def _by_temperature(trace: pandas.DataFrame) -> list[tuple[float, float]]:
    temperatures = trace["temperature"].to_numpy(dtype=float)
    if len(np.unique(temperatures)) == 1:
        return [(float(temperatures[0]), float(trace["accepted"].mean()))]
    return [(round(tau, 6), share) for tau, share in _binned(temperatures, trace)]


def _binned(values: np.ndarray, trace: pandas.DataFrame) -> list[tuple[float, float]]:
    """(upper end, mean acceptance) of the bins that are not empty."""
    edges = np.linspace(values.min(), values.max(), min(_BINS, len(np.unique(values))) + 1)
    place = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)
    accepted = trace["accepted"].to_numpy(dtype=float)
    return [(float(edges[b + 1]), float(accepted[place == b].mean())) for b in np.unique(place)]
