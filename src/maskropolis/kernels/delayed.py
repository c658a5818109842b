"""Delayed acceptance: a cheap surrogate energy S sorts out proposals before the true energy is evaluated.

    stage 1 lets x' pass with  α₁ = min(1, exp(−(S(x') − S(x)) / τ) · q(x|x') / q(x'|x))
    stage 2 accepts it with    α₂ = min(1, exp(−(E(x') − E(x)) / τ + (S(x') − S(x)) / τ))

α₁ obeys detailed balance for exp(−S/τ), and α₂ corrects its proposal to exp(−E/τ), whatever S is.
Christen & Fox (2005), Markov chain Monte Carlo using an approximation, J. Comp. Graph. Stat. 14, 795.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.kernels.base import Info, State, chains_named, describe, metropolis, register
from maskropolis.kernels.path import Path
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import accept
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, Energy
from maskropolis.targets.surrogate import UNMASKED


@register("delayed", exact=True)
@dataclass(frozen=True)
class Delayed:
    """`kernel` proposes (any that is a proposal and one decision: single-site, block, path); `surrogate` sorts out.

    `scale` multiplies S: how far a difference of S is trusted. The inner kernel's energy and early rejection are this
    kernel's.
    """

    variants: ClassVar[tuple[str, ...]] = (
        "delayed:kernel=single-site",
        "delayed:surrogate=grouped/2,scale=0.7",
        "delayed:kernel=block",
    )
    energy: Energy = NORM
    kernel: Any = field(default_factory=Path)
    surrogate: Energy = UNMASKED
    scale: float = 1.0
    early_rejection: bool = True

    def __post_init__(self) -> None:
        if not hasattr(self.kernel, "propose"):
            raise InputError(
                f"delayed acceptance needs a proposal; '{self.kernel.name}' is none: take single-site or path"
            )
        object.__setattr__(self, "kernel", replace(self.kernel, energy=self.energy))

    @property
    def uniforms_per_step(self) -> int:
        return int(self.kernel.uniforms_per_step) + 1  # those of the proposal, stage 1, stage 2

    @property
    def _memory(self) -> str:
        return f"surrogate {self.surrogate.name}"

    def steps_per_sweep(self, free: int) -> int:
        return int(self.kernel.steps_per_sweep(free))

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        state: State = self.kernel.init(model, sequences)
        return replace(state, memory={self._memory: torch.full_like(state.energy, torch.nan)})

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, uniforms_per_step]. One surrogate evaluation of x', and E(x') only where stage 1 passes."""
        x, proposal = state.sequences, self.kernel.propose(model, state, uniforms[:, :-1])
        possible = (proposal.sequences.tokens != x.tokens).any(1) & (proposal.log_q > -torch.inf)
        before, rows_before = self._surrogate(model, x, state.memory[self._memory], possible)
        after, rows_after = self._surrogate(model, proposal.sequences, torch.full_like(before, torch.nan), possible)
        gain = self.scale * (after - before) / temperature

        same = ~(proposal.sequences.tokens != x.tokens).any(1)
        first = torch.where(same, 0.0, torch.where(possible, proposal.log_q - gain, -torch.inf))
        passed = accept(first, uniforms[:, -2])
        decision = metropolis(
            model,
            self.energy,
            state,
            proposed=replace(x, tokens=torch.where(passed[:, None], proposal.sequences.tokens, x.tokens)),
            log_q=torch.where(passed & possible, gain, 0.0),
            temperature=temperature,
            uniforms=uniforms[:, -1],
            known=proposal.known,
            early=self.early_rejection,
        )
        accepted = passed & decision.accepted
        log_ratio = torch.where(passed, first.clamp(max=0) + decision.log_ratio, first)
        memory = {**decision.state.memory, self._memory: torch.where(accepted & possible, after, before)}
        moved = replace(decision.state, step=state.step + 1, memory=memory)
        rows = proposal.rows + rows_before + rows_after + decision.rows
        changed = x.changes(moved.sequences)
        return moved, Info(accepted, log_ratio, proposal.positions, changed, rows)

    def _surrogate(self, model: MaskedLM, sequences: Sequences, found: Tensor, wanted: Tensor) -> tuple[Tensor, int]:
        """S [C] of the wanted chains where `found` [C] is NaN, else as found; and the model rows that it cost."""
        index = (wanted & found.isnan()).nonzero()[:, 0]
        if not len(index):
            return found, 0
        with chains_named(index):
            evaluation = self.surrogate.evaluate(model, sequences.rows(index))
        return found.index_copy(0, index, evaluation.energy), evaluation.rows

    def signature(self) -> str:
        return describe(self)
