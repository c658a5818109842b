"""What a run has done so far, over all its chains."""

from __future__ import annotations

from dataclasses import dataclass, field

from maskropolis.chains.driver import Tick


@dataclass
class Totals:
    """Counters of a run.

    Attributes:
        rows: model rows evaluated. samples: states kept.
        accepted, decisions: proposals accepted, and made. seconds: wall time of the steps.
        notices: what went wrong with single chains, and what was done about it.
        remark: what the kernel has to say at the end, say of its swaps.
    """

    rows: int = 0
    samples: int = 0
    accepted: int = 0
    decisions: int = 0
    seconds: float = 0.0
    notices: list[str] = field(default_factory=list)
    remark: str = ""

    @property
    def acceptance_rate(self) -> float:
        """Share of proposals accepted, burn-in included; NaN before the first."""
        return self.accepted / self.decisions if self.decisions else float("nan")

    def count(self, tick: Tick, seconds: float) -> None:
        """Add one step, which took `seconds` of wall time."""
        self.rows += tick.info.rows
        self.samples += len(tick.chains) if tick.kept else 0
        self.accepted += int(tick.info.accepted.sum())
        self.decisions += len(tick.info.accepted)
        self.seconds += seconds
        self.notices += [f"{error}; the other chains go on" for error in tick.failed]

    def add(self, other: Totals) -> None:
        """The counters of other steps; not their notices."""
        for name in ("rows", "samples", "accepted", "decisions", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
