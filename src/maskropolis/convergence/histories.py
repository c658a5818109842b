"""A run seen by its diagnostics: chains with the same start, whose kept states and steps may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from maskropolis.errors import RunError

if TYPE_CHECKING:
    import pandas


class RunLike(Protocol):
    """What `Samples` (in memory) and `Run` (a folder) have in common."""

    @property
    def signature(self) -> str: ...

    @property
    def config(self) -> dict[str, Any]: ...

    @property
    def burn_in(self) -> int: ...

    def samples(self) -> pa.Table: ...

    def trace(self) -> pa.Table: ...


@dataclass(frozen=True, eq=False)
class History:
    """Chains of one start: they have the same target, so that R-hat may compare them.

    Attributes:
        number: which of the starts. label: the start in words.
        chains: [C] the run's index of each chain. step: [D] steps at which states were kept.
        energy: [C, D] of the kept states. tokens: [C, D, T] int64. texts: C lists of D texts.
        positions: [n] columns that a sampler may change, as far as the run shows.
        trace: one row a step and chain, burn-in included (`maskropolis.chains.tables.TRACE`).
        burn_in: steps before the first state that could be kept.
        dropped: chains that stopped early and are left out.
    """

    number: int
    label: str
    chains: np.ndarray
    step: np.ndarray
    energy: np.ndarray
    tokens: np.ndarray
    texts: list[list[str]]
    positions: np.ndarray
    trace: pandas.DataFrame
    burn_in: int
    dropped: tuple[int, ...] = ()

    @property
    def draws(self) -> int:
        """Kept states a chain."""
        return self.energy.shape[1]

    @property
    def settled(self) -> pandas.DataFrame:
        """The trace after burn-in."""
        return self.trace[self.trace["step"] > self.burn_in]

    def step_energy(self) -> np.ndarray:
        """[C, S] energy after each step since burn-in; S = 0 where the kernel tracks none."""
        table = self.settled.pivot(index="chain", columns="step", values="energy")
        found: np.ndarray = table.reindex(self.chains).to_numpy()
        return found if found.size and bool(np.isfinite(found).all()) else np.empty((len(self.chains), 0))


def histories(run: RunLike) -> list[History]:
    """The chains of a run by start, in the order of the starts. Raises `RunError` if it has no step yet."""
    kept, trace = run.samples().to_pandas(), run.trace().to_pandas()
    if not len(trace):
        raise RunError("the run has no step yet; nothing can be said of it")
    starts = start_labels(run.config)
    found = []
    for number, label in enumerate(starts):
        mine = kept[kept["chain"] % len(starts) == number], trace[trace["chain"] % len(starts) == number]
        if len(mine[1]):
            found.append(_history(number, label, *mine, run.burn_in))
    return found


def start_labels(config: dict[str, Any]) -> list[str]:
    """The distinct starts in words; chain c has number c modulo their count."""
    lengths: Sequence[int] = config.get("lengths") or ()
    texts: Sequence[str] = config.get("templates") or config.get("texts") or ()
    if texts:
        return list(texts)
    return [f"{length} free tokens" for length in lengths or (12,)]


def _history(number: int, label: str, kept: pandas.DataFrame, trace: pandas.DataFrame, burn_in: int) -> History:
    ends = trace.groupby("chain")["step"].max()
    alive = ends.index[ends == ends.max()].to_numpy()
    dropped = tuple(int(chain) for chain in ends.index[ends < ends.max()])
    kept, trace = kept[kept["chain"].isin(alive)], trace[trace["chain"].isin(alive)]
    kept = kept.sort_values(["chain", "step"])
    step = np.sort(kept["step"].unique())
    shape = (len(alive), len(step))
    width = int(kept["token_ids"].map(len).max()) if len(kept) else 0
    rows = [[*ids, *[-1] * (width - len(ids))] for ids in kept["token_ids"]]  # lengths differ where a kernel resizes
    tokens = np.array(rows, dtype=np.int64).reshape(*shape, width)
    texts = np.array(kept["text"].tolist(), dtype=object).reshape(shape)
    energy = kept["energy"].to_numpy(dtype=float).reshape(shape)
    return History(
        number, label, alive, step, energy, tokens, texts.tolist(), _positions(trace, tokens), trace, burn_in, dropped
    )


def _positions(trace: pandas.DataFrame, tokens: np.ndarray) -> np.ndarray:
    """Columns that a step proposed to change."""
    proposed = np.unique(np.concatenate(trace["positions"].to_list()))
    return proposed[proposed < tokens.shape[2]] if tokens.size else proposed
