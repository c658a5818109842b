"""Longer sentences: `mixing` at 30 free tokens, judged by squared jumps of the energy.

So long a chain gives no effective sample within minutes of plain single-site steps; what it does give is its squared
jumps, from the same start for all kernels. Clock and seconds as in `mixing`.
"""

from __future__ import annotations

from functools import cache

from benchmarks.mixing import Figures, compared, register
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
def measured(energy: str) -> Figures:
    """Every kernel, and the ratios of equal steps."""
    model = bundled()
    return compared(f"english-30-{energy}", model, burnt_in(model, energy, SENTENCE, CHAINS), energy, KERNELS)


for _energy in ("norm", "raw"):
    register("mixing.long", _energy, measured)
