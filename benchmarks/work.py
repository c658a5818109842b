"""Model rows evaluated per step and chain, by kernel and shortcut, on the bundled model: the unit of cost, counted.

n free positions, k changes; a row with its gradient counts as three. Without shortcuts a single-site step is n + 1
rows: one for the proposal, n for E(x').
"""

from __future__ import annotations

from benchmarks.harness import Goal, benchmark
from benchmarks.models import bundled
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import ENERGIES

SENTENCE = "she looked at him with a smile and said nothing"
N = len(SENTENCE.split())
CHAINS, BURN_IN, STEPS = 16, 30, 20
PLAIN = "single-site:keep_conditionals=no,reuse_row=no,early_rejection=no"
MOST = {
    "single-site.plain": (PLAIN, N + 1),
    "single-site.kept_conditionals": ("single-site:reuse_row=no,early_rejection=no", N),
    "single-site.kept_conditionals_shared_row": ("single-site:early_rejection=no", N - 1),
    "single-site": ("single-site", N - 1),
    "block.plain": ("block:early_rejection=no", N + 1),
    "block": ("block", N + 1),
    "path": ("path", N + 2),
    "delayed": ("delayed", N + 4),
    "staged": ("staged", N),
    "informed": ("informed", N - 1),
    "gwg": ("gwg", 3 * N),
    "discrete-langevin": ("discrete-langevin", 3 * N),
    "tempering": ("tempering", 2 * (N - 1)),
}


def _register(label: str, specification: str, most: int) -> None:
    @benchmark(f"work.{label}", unit=f"rows a step and chain, {N} free", goal=Goal(most, at_most=True))
    def rows() -> float:
        return rows_per_step(specification)


for _label, (_specification, _most) in MOST.items():
    _register(_label, _specification, _most)


def rows_per_step(specification: str, energy: str = "norm") -> float:
    """Rows per step and chain over the same `STEPS` steps of uniforms, from chains that have left their start."""
    model, kernel = bundled(), build_kernel(specification, ENERGIES[energy])
    streams = Streams(1, range(CHAINS))
    state = kernel.init(model, burnt_in(model, energy))
    rows = 0
    for step in range(STEPS):
        state, info = kernel.step(model, state, 1.0, streams.uniforms(step, kernel.uniforms_per_step))
        rows += info.rows
    return rows / STEPS / CHAINS


_BURNT_IN: dict[tuple[str, str, int], Sequences] = {}


def burnt_in(model: HuggingFaceMaskedLM, energy: str, sentence: str = SENTENCE, chains: int = CHAINS) -> Sequences:
    """`chains` sequences after some informed steps from one sentence, the same for every kernel."""
    key = (energy, sentence, chains)
    if key not in _BURNT_IN:
        kernel, streams = build_kernel("informed", ENERGIES[energy]), Streams(2, range(chains))
        state = kernel.init(model, model.codec.encode([sentence] * chains))
        for step in range(BURN_IN):
            state, _ = kernel.step(model, state, 1.0, streams.uniforms(step, kernel.uniforms_per_step))
        _BURNT_IN[key] = state.sequences
    if not bool((_BURNT_IN[key].free_counts == len(sentence.split())).all()):
        raise AssertionError("expected each of the words to be one token")
    return _BURNT_IN[key]
