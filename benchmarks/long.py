"""Longer sentences: `mixing` at 30 free tokens, judged by squared jumps of the energy.

So long a chain gives no effective sample within minutes of plain single-site steps; what it does give is its squared
jumps, from the same start for all kernels. Clock and seconds as in `mixing`.
"""

from __future__ import annotations

from functools import cache

from benchmarks.harness import Goal, benchmark
from benchmarks.mixing import Mixing, best_jump, compared, lead, shortcuts, staged
from benchmarks.models import bundled
from benchmarks.work import PLAIN, burnt_in

SENTENCE = (
    "when the old man came back to the house that evening he sat down by the fire and told the children a long story "
    "about the sea and the ships"
)
CHAINS = 8
KERNELS = (
    PLAIN,
    "single-site",
    "staged",
    "path:k=2",
    "staged:kernel=path(k=2),terms=4",
    "path:k=4",
    "staged:kernel=path(k=4),terms=4",
)


@cache
def measured(energy: str) -> tuple[dict[str, Mixing], float]:
    """Every kernel, and the textbook's steps per second."""
    model = bundled()
    return compared(f"english-30-{energy}", model, burnt_in(model, energy, SENTENCE, CHAINS), energy, KERNELS)


def _register(energy: str) -> None:
    unit = "times the squared energy jump a second"

    @benchmark(f"mixing.long.jump.best_vs_single_site.{energy}", unit=unit, goal=Goal(3))
    def vs_single_site() -> float:
        return best_jump(measured(energy)[0])

    @benchmark(f"mixing.long.jump.best_vs_textbook.{energy}", unit=unit, goal=Goal(10))
    def vs_textbook() -> float:
        found, textbook = measured(energy)
        return best_jump(found) * lead(found, textbook)

    @benchmark(f"mixing.long.shortcuts.{energy}", unit="times the steps a second, same chain", goal=Goal(1))
    def same_chain() -> float:
        return shortcuts(measured(energy)[0])

    @benchmark(f"mixing.long.staged.{energy}", unit="times the steps a second, same proposals", goal=Goal(1))
    def same_proposals() -> float:
        return staged(measured(energy)[0])


for _energy in ("norm", "raw"):
    _register(_energy)
