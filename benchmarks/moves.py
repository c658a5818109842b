"""Tokens changed per 1,000 model rows on the bundled model: what a kernel that asks for the gradient gets for it.

E_norm at τ = 1, from the same chains as `work` with the same uniforms. A row with its gradient counts as three. A token
that changes back and forth counts each time, so this compares kernels of one kind; `mixing` is about samples.
"""

from __future__ import annotations

from benchmarks.harness import Goal, benchmark
from benchmarks.models import bundled
from benchmarks.work import CHAINS, burnt_in
from maskropolis.kernels.specification import build_kernel
from maskropolis.randomness import Streams
from maskropolis.targets.energy import ENERGIES

STEPS = 12
KERNELS = {
    "informed": "informed",
    "gwg": "gwg",
    "gwg.top_50": "gwg:top_k=50",
    "discrete-langevin": "discrete-langevin",
    "discrete-langevin.top_50": "discrete-langevin:top_k=50,step_size=0.4",
}


def _register(label: str, specification: str) -> None:
    @benchmark(f"moves.{label}", unit="tokens changed per 1,000 rows", goal=Goal(0))
    def changes() -> float:
        model, kernel = bundled(), build_kernel(specification, ENERGIES["norm"])
        streams, state = Streams(1, range(CHAINS)), kernel.init(model, burnt_in(model, "norm"))
        changed = rows = 0
        for step in range(STEPS):
            state, info = kernel.step(model, state, 1.0, streams.uniforms(step, kernel.uniforms_per_step))
            changed += int(info.changed.sum())
            rows += info.rows
        return 1000 * changed / rows


for _label, _specification in KERNELS.items():
    _register(_label, _specification)
