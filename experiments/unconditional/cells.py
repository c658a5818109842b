"""The cells of the study: systems, lengths, starts and temperatures, and what a cell may cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from maskropolis.errors import InputError

LENGTHS = (10, 15, 20, 30)
STARTS = ("masks", "text")
TEMPERATURES = (1.0, 0.7)
COOLING = 0.1  # the last temperature of an annealed chain, as a share of the first


@dataclass(frozen=True)
class System:
    """What makes samples.

    Attributes:
        kernel: specification, `best` for the winner of the pilot, None for diffusion.
        energy: of the target. annealed: whether τ falls to `COOLING` of what it was.
        extra: measured only if asked for.
    """

    name: str
    kernel: str | None
    energy: str = "norm"
    annealed: bool = False
    extra: bool = False


SYSTEMS = (
    System("Gibbs", "gibbs"),
    System("MH raw", "single-site", "raw"),
    System("MH norm", "single-site"),
    System("MH norm, blocks of 2", "block:k=2"),
    System("MH norm, blocks of 4", "block:k=4"),
    System("best exact kernel", "best"),
    System("diffusion", None),
    System("MH norm, annealed", "single-site", annealed=True),
    System("MH raw, blocks of 2", "block:k=2", "raw", extra=True),
    System("MH raw, blocks of 4", "block:k=4", "raw", extra=True),
    System("MH raw, annealed", "single-site", "raw", annealed=True, extra=True),
)

CANDIDATES = (
    "single-site",
    "single-site:scan=left-to-right",
    "block:k=2",
    "path:k=2",
    "path:k=4",
    "informed",
    "informed:balancing=sqrt",
    "delayed(kernel=single-site)",
    "mixture(single-site=2,block(k=2)=1)",
    "gwg",
)
"""Exact kernels that the pilot compares; the best of those that no system names already is the `best exact kernel`."""


@dataclass(frozen=True)
class Settings:
    """What every cell may cost and what is kept of it.

    Attributes:
        rows: model rows of a cell, its chains together, from the start on.
        chains: independent chains. marks: places on the way, evenly spread over the rows, at which states are recorded.
        kept: the last so many marks of each chain are the samples.
        measured: of these, so many of each chain have both energies computed.
        curve: marks of a curve, the start not counted. curve_length: the length for which curves are measured.
    """

    rows: int = 3000
    chains: int = 10
    marks: int = 40
    kept: int = 20
    measured: int = 5
    curve: int = 10
    curve_length: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.rows, self.chains - 1, self.kept, self.measured, self.curve) < 1 or self.marks < self.kept:
            raise InputError(
                f"rows {self.rows}, chains {self.chains}, marks {self.marks}, kept {self.kept} are out of range; "
                "expected at least 1 row, 2 chains, and as many marks as are kept"
            )

    @property
    def samples(self) -> int:
        return self.chains * self.kept


@dataclass(frozen=True)
class Cell:
    system: System
    length: int
    start: str
    temperature: float

    @property
    def name(self) -> str:
        """A name for a file."""
        plain = "".join(letter if letter.isalnum() else "-" for letter in self.system.name)
        return f"{self.length}-{self.start}-{self.temperature:g}-{plain}"


def grid(lengths: Sequence[int], other_lengths: Sequence[int], extra: bool = False) -> Iterator[Cell]:
    """From masks at τ = 1 all `lengths`; the other starts and temperatures at those of `other_lengths` alone."""
    for start in STARTS:
        for temperature in TEMPERATURES:
            first = (start, temperature) == (STARTS[0], TEMPERATURES[0])
            for length in lengths if first else other_lengths:
                for system in SYSTEMS:
                    if extra or not system.extra:
                        yield Cell(system, length, start, temperature)
