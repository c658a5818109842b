"""What a run in memory leaves: kept states with their energies, the trace, and the signature that says how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from maskropolis.chains.driver import Tick
from maskropolis.chains.tables import TraceBuffer, samples_table
from maskropolis.chains.totals import Totals
from maskropolis.records import open_records

if TYPE_CHECKING:
    import arviz
    import pandas


@dataclass
class Samples:
    """Kept states in the order they were met (all chains of a step together). A run folder, `Run`, reads alike.

    Attributes:
        signature: model, energy, kernel, temperature, seed and version, in one line.
        config: the fields of `SamplingConfig`.
        burn_in, thin: steps before the first state that could be kept, and between kept states.
        records: one dictionary a kept state: chain, step, text, token_ids, energy, temperature, accepted.
        steps: steps made. planned_steps: steps that were to be made.
        stopped_by: the signal that ended the run early, if one did.
        totals: counters of the whole run.
    """

    signature: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    burn_in: int = 0
    thin: int = 1
    records: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    planned_steps: int = 0
    stopped_by: int | None = None
    totals: Totals = field(default_factory=Totals)
    _trace: TraceBuffer = field(default_factory=TraceBuffer, repr=False)

    def __len__(self) -> int:
        """Number of kept states."""
        return len(self.records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.records)

    @property
    def texts(self) -> list[str]:
        return [record["text"] for record in self.records]

    @property
    def energy(self) -> list[float]:
        """Energy of each kept state, in nats (norm) or logits (raw)."""
        return [record["energy"] for record in self.records]

    @property
    def interrupted(self) -> bool:
        """Whether the run ended before its last step."""
        return self.steps < self.planned_steps

    @property
    def rows(self) -> int:
        """Model rows evaluated."""
        return self.totals.rows

    @property
    def notices(self) -> list[str]:
        """What went wrong with single chains, and what was done about it."""
        return self.totals.notices

    @property
    def acceptance_rate(self) -> float:
        """Share of proposals accepted over the whole run, burn-in included."""
        return self.totals.acceptance_rate

    def samples(self) -> pa.Table:
        """Kept states: the columns of `maskropolis.chains.tables.SAMPLES`."""
        return samples_table(self.records)

    def trace(self) -> pa.Table:
        """Every step of every chain, burn-in included: the columns of `maskropolis.chains.tables.TRACE`."""
        return self._trace.table()

    def to_pandas(self) -> pandas.DataFrame:
        """One row a kept state."""
        return self.samples().to_pandas()

    def to_arviz(self, start: int | None = None) -> arviz.InferenceData:
        """Kept states as ArviZ's plots expect them; see `maskropolis.convergence.inference_data.to_arviz`."""
        from maskropolis.convergence.inference_data import to_arviz

        return to_arviz(self, start)

    def write(self, path: str, overwrite: bool = False) -> None:
        """The records to `path`, Parquet if its suffix says so, else JSON lines. Raises `InputError` if it exists."""
        with open_records(str(path), overwrite) as write:
            write(self.records)

    def add(self, tick: Tick, seconds: float, records: list[dict[str, Any]]) -> None:
        """One more step, which took `seconds`, and the records of its states if they are kept."""
        self.steps = tick.step
        self.totals.count(tick, seconds)
        self.records += records
        self._trace.add(tick, seconds)


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
