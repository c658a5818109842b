"""What a run leaves: kept states with their energies, acceptance, and the signature that says how they came about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from maskropolis.chains.driver import Tick

if TYPE_CHECKING:
    import pandas


@dataclass
class Samples:
    """Kept states in the order they were met (all chains of a step together).

    Attributes:
        signature: model, energy, kernel, temperature, seed and version, in one line.
        records: one dictionary a kept state: chain, step, text, token_ids, energy, temperature, accepted.
        steps: steps made. rows: model rows evaluated. interrupted: whether the run was stopped early.
        notices: what went wrong with single chains.
    """

    signature: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    rows: int = 0
    interrupted: bool = False
    notices: list[str] = field(default_factory=list)
    _accepted: float = 0.0
    _decisions: int = 0

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.records)

    @property
    def texts(self) -> list[str]:
        return [record["text"] for record in self.records]

    @property
    def energy(self) -> list[float]:
        """Energy of each kept state, in nats (norm) or logits (raw); NaN where none was computed."""
        return [record["energy"] for record in self.records]

    @property
    def acceptance_rate(self) -> float:
        """Share of proposals accepted over the whole run, burn-in included."""
        return self._accepted / self._decisions if self._decisions else float("nan")

    def to_pandas(self) -> pandas.DataFrame:
        """One row a kept state."""
        import pandas

        return pandas.DataFrame(self.records)

    def count(self, tick: Tick) -> None:
        """Add one step to the totals."""
        self.steps = tick.step
        self.rows += tick.info.rows
        self._accepted += float(tick.info.accepted.sum())
        self._decisions += len(tick.info.accepted)
        self.notices += [str(error) for error in tick.failed]


def records_of(tick: Tick, texts: list[str], energy: torch.Tensor) -> list[dict[str, Any]]:
    """The records of one kept step; `energy` [C]."""
    tokens, lengths = tick.state.sequences.tokens.tolist(), tick.state.sequences.lengths.tolist()
    return [
        {
            "chain": chain,
            "step": tick.step,
            "text": text,
            "token_ids": row[:length],
            "energy": value,
            "temperature": tick.temperature,
            "accepted": accepted,
        }
        for chain, text, row, length, value, accepted in zip(
            tick.chains.tolist(), texts, tokens, lengths, energy.tolist(), tick.info.accepted.tolist(), strict=True
        )
    ]
