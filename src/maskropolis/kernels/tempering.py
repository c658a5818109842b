"""Parallel tempering: L replicas of a chain on a ladder of temperatures, neighbours exchange their places.

    replica at level ℓ moves by `kernel` at τ_ℓ = τ · ladder[ℓ],    ladder[0] = 1
    levels ℓ and ℓ+1 swap with min(1, exp((1/τ_ℓ − 1/τ_{ℓ+1}) (E_ℓ − E_{ℓ+1})))
    for ℓ even on even steps, ℓ odd on odd ones

This leaves Π_ℓ π_{τ_ℓ} invariant, and the replica at level 0 is the chain. While the ladder is spaced anew (`adapt`)
the kernel changes, so those steps must be burn-in. Geyer (1991); non-reversible even–odd swaps and the spacing of
the ladder: Syed, Bouchard-Côté, Deligiannidis & Doucet (2022), J. R. Stat. Soc. B 84, 321.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from maskropolis.errors import InputError, NumericalError
from maskropolis.kernels.base import Info, State, describe, register
from maskropolis.kernels.single_site import SingleSite
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import accept
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, Energy, Evaluation


@register("tempering", exact=True)
@dataclass(frozen=True)
class Tempering:
    """L times the cost of `kernel`. The ladder is geometric, `levels` temperatures from τ to τ · `hottest`, or given.

    `adapt`: in so many first steps, after a quarter, half and all of them, each chain's ladder is spaced between its
    ends for equal rates of its swaps.

    State: `inner` holds the C·L replicas, `memory["level"]` [C, L] the level of each, `memory["ladder"]` [C, L] τ_ℓ / τ
    of each level, `memory["tried"]` and `memory["swapped"]` [C, L−1] count swaps between neighbouring levels since it
    was spaced last. What the state shows is level 0.
    """

    variants: ClassVar[tuple[str, ...]] = ("tempering:hottest=3",)
    energy: Energy = NORM
    kernel: Any = field(default_factory=SingleSite)
    levels: int = 2
    hottest: float = 1.5
    ladder: tuple[float, ...] = ()
    adapt: int = 0

    def __post_init__(self) -> None:
        if not self.kernel.exact or hasattr(self.kernel, "enumerate"):
            raise InputError(
                f"tempering cannot run '{self.kernel.name}'; expected an exact kernel on one temperature and length"
            )
        given = self.ladder or tuple(float(f) for f in np.geomspace(1.0, self.hottest, max(1, self.levels)))
        if len(given) < 2 or given[0] != 1 or not all(a < b < np.inf for a, b in pairwise(given)):
            raise InputError(f"a ladder needs at least two rising factors from 1 on; got {given}")
        if self.ladder and self.levels not in (2, len(self.ladder)):
            raise InputError(f"{self.levels} levels and a ladder of {len(self.ladder)} contradict each other; give one")
        if self.adapt < 0:
            raise InputError(f"the ladder cannot be spaced anew for {self.adapt} steps; expected 0 or more")
        if self.adapt and len(given) < 3:
            raise InputError("a ladder of two levels has nothing to space anew; leave adapt away, or take levels=3")
        object.__setattr__(self, "kernel", replace(self.kernel, energy=self.energy))

    @property
    def factors(self) -> tuple[float, ...]:
        """τ_ℓ / τ of each level at the start."""
        return self.ladder or tuple(float(f) for f in np.geomspace(1.0, self.hottest, self.levels))

    @property
    def uniforms_per_step(self) -> int:
        count = len(self.factors)
        return count * int(self.kernel.uniforms_per_step) + count // 2  # of each replica, of each swap

    def steps_per_sweep(self, free: int) -> int:
        return int(self.kernel.steps_per_sweep(free))

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        count, chains = len(self.factors), torch.arange(len(sequences), device=sequences.device)
        return self.assemble(self.kernel.init(model, sequences.rows(chains.repeat_interleave(count))))

    def assemble(self, inner: State) -> State:
        """The state whose replicas are the C·L rows of `inner`, chain by chain, each chain's levels in order."""
        count, device = len(self.factors), inner.sequences.device
        chains = len(inner.sequences) // count
        swaps = torch.zeros(chains, count - 1, dtype=torch.float64, device=device)
        memory = {
            "level": torch.arange(count, device=device).repeat(chains, 1),
            "ladder": torch.tensor(self.factors, dtype=torch.float64, device=device).repeat(chains, 1),
            "tried": swaps,
            "swapped": swaps,
        }
        return _shown(State(inner.sequences, None, inner.step, memory, inner))

    def enumerate(self, model: MaskedLM, states: Sequences, temperature: float) -> tuple[State, Tensor]:
        """Every placement of `states` [S, T] on the levels by every assignment of replicas: S^L · L! states, and
        log Π_ℓ π_{τ_ℓ} of each, unnormalised. The certificate of exactness asks for this."""
        count, device = len(self.factors), states.device
        orders = torch.tensor(list(permutations(range(count))), device=device)
        places = torch.cartesian_prod(*[torch.arange(len(states), device=device)] * count)
        inner = self.kernel.init(model, states.rows(places.repeat_interleave(len(orders), 0).flatten()))
        level = orders.repeat(len(places), 1)
        state = self.assemble(inner)
        state = _shown(replace(state, memory={**state.memory, "level": level}))
        tau = temperature * torch.tensor(self.factors, dtype=torch.float64, device=device)[level]
        return state, -(inner.energy.view(-1, count) / tau).sum(1)

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, uniforms_per_step]."""
        assert state.inner is not None
        level = state.memory["level"]
        chains, count = level.shape
        tau = state.memory["ladder"].gather(1, level) * (
            temperature[:, None] if isinstance(temperature, Tensor) else temperature
        )
        own = uniforms[:, : count * self.kernel.uniforms_per_step].reshape(chains * count, -1)
        try:
            inner, info = self.kernel.step(model, replace(state.inner, step=state.step), tau.flatten(), own)
        except NumericalError as error:
            raise NumericalError(error.plain, sorted({row // count for row in error.chains})) from None
        cold = torch.arange(chains, device=level.device) * count + level.argmin(1)
        swaps = uniforms[:, count * self.kernel.uniforms_per_step :]
        memory = _swapped(state, inner.energy.view(chains, count), tau, swaps)
        if state.step + 1 in {self.adapt // 4, self.adapt // 2, self.adapt}:
            memory = _spaced_anew(memory)
        moved = _shown(State(state.sequences, None, state.step + 1, memory, inner))
        changed = state.sequences.changes(moved.sequences)
        return moved, Info(info.accepted[cold], info.log_ratio[cold], info.positions[cold], changed, info.rows)

    def swap_rates(self, state: State) -> list[float]:
        """Share of accepted swaps between levels ℓ and ℓ+1 since the ladder was spaced last, all chains together; NaN
        before any."""
        tried, swapped = state.memory["tried"].sum(0), state.memory["swapped"].sum(0)
        return [float(rate) for rate in swapped / tried]

    def remark(self, state: State) -> str:
        """Swap rates and ladder in words; the ladder is the geometric mean of the chains'."""
        rates = ", ".join("–" if rate != rate else f"{rate:.0%}" for rate in self.swap_rates(state))
        ladder = ", ".join(f"{factor:.3g}" for factor in state.memory["ladder"].log().mean(0).exp().tolist())
        return f"swaps between neighbouring temperatures: {rates}; ladder {ladder}"

    def signature(self) -> str:
        return describe(self)


def _swapped(state: State, energy: Tensor, tau: Tensor, uniforms: Tensor) -> dict[str, Tensor]:
    """Memory after the swaps of this step; energy and tau [C, L] by replica, `uniforms` [C, L // 2]."""
    replica = state.memory["level"].argsort(1)  # [C, L]: which replica is at a level
    tried, swapped = state.memory["tried"].clone(), state.memory["swapped"].clone()
    for number, low in enumerate(range(state.step % 2, replica.shape[1] - 1, 2)):
        pair = replica[:, low : low + 2]
        e, beta = energy.gather(1, pair), 1 / tau.gather(1, pair)
        yes = accept((beta[:, 0] - beta[:, 1]) * (e[:, 0] - e[:, 1]), uniforms[:, number])
        replica = replica.clone()
        replica[:, low : low + 2] = torch.where(yes[:, None], pair.flip(1), pair)
        tried[:, low] += 1
        swapped[:, low] += yes.double()
    return {**state.memory, "level": replica.argsort(1), "tried": tried, "swapped": swapped}


def _spaced_anew(memory: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each chain's ladder moved along its cumulated rejection rates, interpolated in log τ; counting begins anew."""
    ladder = memory["ladder"].clone()
    rejected = 1 - (memory["swapped"] + 0.5) / (memory["tried"] + 1)  # half a swap in one more try: no rate is 0 or 1
    for chain, rates in enumerate(rejected.cpu().numpy()):
        barrier = np.concatenate([[0.0], np.cumsum(rates)])
        even = np.linspace(0.0, barrier[-1], len(barrier))[1:-1]
        between = np.exp(np.interp(even, barrier, np.log(ladder[chain].cpu().numpy())))
        ladder[chain, 1:-1] = torch.as_tensor(between, device=ladder.device)
    none = torch.zeros_like(memory["tried"])
    return {**memory, "ladder": ladder, "tried": none, "swapped": none}


def _shown(state: State) -> State:
    """The state that shows the replicas at level 0."""
    level, inner = state.memory["level"], state.inner
    assert inner is not None and inner.evaluation is not None
    cold = torch.arange(len(level), device=level.device) * level.shape[1] + level.argmin(1)
    evaluation = Evaluation(inner.energy[cold], inner.evaluation.terms[cold])
    return replace(state, sequences=inner.sequences.rows(cold), evaluation=evaluation)
