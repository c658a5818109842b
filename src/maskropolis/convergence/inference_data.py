"""Runs as ArviZ knows them: an `InferenceData` with the energy and indicators of the kept states.

    energy           E(x), in nats (norm) or logits (raw)
    indicator[t]     1 where the token at position t is the most frequent one there, over all chains and draws
    agreement        share of the free positions that hold it: the mean of the indicators

Text has no mean; these numbers stand for it. A chain that has not forgotten its start shows in their R-hat. The most
frequent token is taken over all draws, not over the first half: chosen from one half, it would agree with that half
better by the choice alone, and R-hat would see a trend where there is none.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from maskropolis.convergence.histories import History, RunLike, histories
from maskropolis.errors import InputError

if TYPE_CHECKING:
    from arviz import InferenceData


@contextlib.contextmanager
def quiet_arviz() -> Iterator[Any]:
    """The module arviz, without its notice of a coming version and without warnings about short chains."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz

        with np.errstate(all="ignore"):
            yield arviz


def to_arviz(run: RunLike, start: int | None = None) -> InferenceData:
    """Kept states as `posterior` (chain, draw), with log density and acceptance as `sample_stats`.

    Chains of different starts have different targets and cannot be pooled: where a run has several, `start` says which
    (counted from 0). Save with `.to_netcdf(file)`. Raises `InputError` if `start` is missing or out of range, or if no
    state was kept.
    """
    found = histories(run)
    if start is None and len(found) > 1:
        raise InputError(f"the run has {len(found)} different starts; choose one: to_arviz(start=0 … {len(found) - 1})")
    if not 0 <= (start or 0) < len(found):
        raise InputError(f"start {start} is out of range; the run has {len(found)}, counted from 0")
    history = found[start or 0]
    if not history.draws:
        raise InputError("no state was kept yet; keep some with --samples, or look at the trace")
    return inference_data(history, run.signature)


def inference_data(history: History, signature: str = "") -> InferenceData:
    """The kept states of one `History`."""
    coords = {"chain": history.chains, "draw": np.arange(history.draws), "position": history.positions}
    temperature, acceptance = _between_draws(history)
    attributes = {"signature": signature, "start": history.label}
    with quiet_arviz() as arviz:
        made = arviz.from_dict(
            posterior={
                "energy": history.energy,
                "indicator": indicators(history),
                "agreement": agreement(history),
            },
            sample_stats={
                "lp": -history.energy / temperature,
                "temperature": temperature,
                "acceptance_rate": acceptance,
            },
            constant_data={"step": history.step},
            coords=coords | {"step_dim_0": np.arange(history.draws)},
            dims={"indicator": ["position"]},
            posterior_attrs=attributes,
            sample_stats_attrs=attributes,
        )
    return cast("InferenceData", made)


def indicators(history: History) -> np.ndarray:
    """[C, D, n] float: 1 where the token at a free position is the most frequent one there."""
    free = history.tokens[:, :, history.positions]
    return (free == _modes(free)).astype(float)


def agreement(history: History) -> np.ndarray:
    """[C, D] share of free positions that hold the most frequent token there."""
    shares: np.ndarray = indicators(history).mean(2)
    return shares


def _modes(tokens: np.ndarray) -> np.ndarray:
    """[n] most frequent token at each position of [C, D, n]; of equally frequent ones the smallest id."""
    flat = tokens.reshape(-1, tokens.shape[2])
    modes = []
    for column in flat.T:
        values, counts = np.unique(column, return_counts=True)
        modes.append(values[counts.argmax()])
    return np.array(modes, dtype=tokens.dtype)


def _between_draws(history: History) -> tuple[np.ndarray, np.ndarray]:
    """[C, D] temperature at each kept state, and share of proposals accepted since the one before."""
    table = history.settled
    last = np.searchsorted(history.step, table["step"].to_numpy())
    table = table.assign(draw=last)[last < history.draws]
    means = table.pivot_table(index="chain", columns="draw", values="accepted", aggfunc="mean")
    ends = table.pivot_table(index="chain", columns="draw", values="temperature", aggfunc="last")
    index = {"index": history.chains, "columns": np.arange(history.draws)}
    return ends.reindex(**index).to_numpy(), means.astype(float).reindex(**index).to_numpy()


def save_netcdf(data: InferenceData, file: str | Path) -> None:
    """Write to `file`, which `arviz.from_netcdf` reads. Raises `InputError` if it cannot be written."""
    with quiet_arviz():
        try:
            data.to_netcdf(str(file), engine="h5netcdf")
        except OSError as error:
            raise InputError(f"cannot write '{file}': {error.strerror or error}") from None
