"""The figures of a report, each from one part of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from maskropolis.convergence.diagnostics import StartDiagnosis
from maskropolis.convergence.histories import History
from maskropolis.report.svg import Axes

_POINTS = 240
_BINS = 30


class Figure(NamedTuple):
    """A drawing with a heading and a sentence that says how to read it."""

    title: str
    svg: Markup
    caption: str


def figures(history: History, found: StartDiagnosis, unit: str) -> list[Figure]:
    """All figures that the run has data for."""
    made = [
        energy_traces(history, unit),
        autocorrelation(found.autocorrelation, found.source),
        acceptance_by_position(found.movement.by_position),
        acceptance_over_time(found.movement.over_time, history.burn_in),
        energy_histogram(history, unit),
    ]
    if len(found.movement.by_temperature) > 1:
        made.append(acceptance_by_temperature(found.movement.by_temperature))
    return [figure for figure in made if figure is not None]


def energy_traces(history: History, unit: str) -> Figure | None:
    """Energy of each chain after every step, or of the kept states where the kernel tracks none."""
    curves = []
    table = history.trace.pivot(index="chain", columns="step", values="energy")
    for row, chain in enumerate(history.chains):
        xs, ys = table.columns.to_numpy(dtype=float), table.loc[chain].to_numpy(dtype=float)
        if not np.isfinite(ys).any():
            xs, ys = history.step.astype(float), history.energy[row]
        curves.append((int(chain), *_thinned(xs, ys)))
    values = np.concatenate([ys[np.isfinite(ys)] for _, _, ys in curves])
    if not len(values):
        return None
    last = max(float(xs[-1]) for _, xs, _ in curves)
    axes = Axes((0, last), _padded(values), ("step", f"energy ({unit})"), "Energy of each chain over its steps")
    if history.burn_in:
        axes.shade(0, min(history.burn_in, last), "burn-in")
    for place, (chain, xs, ys) in enumerate(curves):
        axes.line(xs.tolist(), ys.tolist(), place, f"chain {chain}")
    return Figure(
        "Energy of each chain",
        axes.svg(),
        "Chains that agree look like one hairy band. Grey: burn-in, before any state is kept.",
    )


def autocorrelation(values: Sequence[float], source: str) -> Figure | None:
    if len(values) < 2:
        return None
    lag = "steps" if source == "steps" else "kept states"
    axes = Axes(
        (0, len(values) - 1),
        (min(0.0, *values), 1.0),
        (f"lag ({lag})", "correlation"),
        "Autocorrelation of the energy",
        whole=True,
    )
    for index, value in enumerate(values):
        axes.stem(index, value, f"lag {index}: {value:.2f}")
    return Figure(
        "Autocorrelation of the energy",
        axes.svg(),
        "How long the chain remembers: draws further apart than where the stems vanish are nearly independent.",
    )


def acceptance_by_position(shares: dict[int, float]) -> Figure | None:
    if not shares:
        return None
    axes = Axes(
        (min(shares) - 0.5, max(shares) + 0.5),
        (0, 1),
        ("position", "accepted"),
        "Acceptance rate by position",
        percent=True,
        whole=True,
    )
    for position, share in shares.items():
        axes.bar(position - 0.45, position + 0.45, share, f"position {position}: {share:.1%}")
    return Figure("Acceptance by position", axes.svg(), "Positions count from 0; special tokens count too.")


def acceptance_over_time(shares: list[tuple[int, float]], burn_in: int) -> Figure | None:
    if len(shares) < 2:
        return None
    axes = Axes((0, shares[-1][0]), (0, 1), ("step", "accepted"), "Acceptance rate over time", percent=True)
    if burn_in:
        axes.shade(0, min(burn_in, shares[-1][0]), "burn-in")
    axes.line([step for step, _ in shares], [share for _, share in shares])
    return Figure("Acceptance over time", axes.svg(), "Share of proposals accepted, all chains together.")


def acceptance_by_temperature(shares: list[tuple[float, float]]) -> Figure:
    axes = Axes(
        (shares[0][0], shares[-1][0]), (0, 1), ("temperature τ", "accepted"), "Acceptance by temperature", percent=True
    )
    axes.line([tau for tau, _ in shares], [share for _, share in shares])
    return Figure("Acceptance by temperature", axes.svg(), "The run was annealed: τ falls from right to left.")


def energy_histogram(history: History, unit: str) -> Figure | None:
    """Energies of the kept states."""
    values = history.energy[np.isfinite(history.energy)]
    if not len(values):
        return None
    counts, edges = np.histogram(values, bins=min(_BINS, max(5, round(len(values) ** 0.5))))
    axes = Axes((edges[0], edges[-1]), (0, 1.05 * int(counts.max())), (f"energy ({unit})", "kept states"), "Energies")
    for count, left, right in zip(counts, edges, edges[1:], strict=False):
        axes.bar(float(left), float(right), float(count), f"{left:.2f} to {right:.2f}: {count}")
    return Figure("Energies of the kept states", axes.svg(), f"{len(values)} kept states, all chains together.")


def _thinned(xs: np.ndarray, ys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most some hundred points: of longer curves the lowest and highest of each stretch, in order."""
    if len(xs) <= _POINTS:
        return xs, ys
    keep: list[int] = []
    for part in np.array_split(np.arange(len(xs)), _POINTS // 2):
        keep += sorted({int(part[ys[part].argmin()]), int(part[ys[part].argmax()])})
    return xs[keep], ys[keep]


def _padded(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low)
    return low - margin, high + margin
