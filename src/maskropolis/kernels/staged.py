"""Staged acceptance: the terms of E nearest to the change sort out proposals before the others are evaluated.

E(x) = A(x) + R(x), A the terms at the positions S that were proposed to change and at the `terms` free positions
nearest to them, R all others and what experts add.

    stage 1 lets x' pass with  α₁ = min(1, exp(−(A(x') − A(x)) / τ) · q(x|x') / q(x'|x))
    stage 2 accepts it with    α₂ = min(1, exp(−(R(x') − R(x)) / τ))

S depends on the positions alone, which are drawn without regard to x, so for each S this is delayed acceptance
(Christen & Fox 2005) with the surrogate A, and leaves π_τ invariant. A is a part of E: a proposal that passes has
wasted no row, and one that is rejected has cost few. Unlike early rejection this needs no bound, so it serves the raw
energy as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.kernels.base import Info, Proposal, State, chains_named, describe, register, taken
from maskropolis.kernels.single_site import SingleSite
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import accept, hopeless
from maskropolis.sequences import Sequences
from maskropolis.targets.bounded import divided, finish, is_bounded, promising_order
from maskropolis.targets.energy import NORM, Energy, Known, Tally


@register("staged", exact=True)
@dataclass(frozen=True)
class Staged:
    """`kernel` proposes (any that is a proposal and one decision: single-site, block, path). Its energy and early
    rejection are this kernel's; early rejection works in stage 2.

    `terms`: how many free positions beside the changed ones stage 1 looks at.
    """

    variants: ClassVar[tuple[str, ...]] = (
        "staged:terms=1",
        "staged:kernel=path(k=2),terms=1",
        "staged:kernel=block,terms=0",
        "staged:kernel=path(k=9),terms=1",
    )
    energy: Energy = NORM
    kernel: Any = field(default_factory=SingleSite)
    terms: int = 3
    early_rejection: bool = True

    def __post_init__(self) -> None:
        if not hasattr(self.kernel, "propose"):
            raise InputError(
                f"staged acceptance needs a proposal; '{self.kernel.name}' is none: take single-site, path or block"
            )
        if self.terms < 0:
            raise InputError(f"the number of terms in stage 1 is {self.terms}; expected 0 or more")
        object.__setattr__(self, "kernel", replace(self.kernel, energy=self.energy))

    @property
    def uniforms_per_step(self) -> int:
        return int(self.kernel.uniforms_per_step) + 1  # those of the proposal, stage 1, stage 2

    def steps_per_sweep(self, free: int) -> int:
        return int(self.kernel.steps_per_sweep(free))

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        state: State = self.kernel.init(model, sequences)
        return state

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, uniforms_per_step]. At most the rows of the inner kernel; R(x') only where stage 1 passes."""
        proposal = self.kernel.propose(model, state, uniforms[:, :-1])
        moved = (proposal.sequences.tokens != state.sequences.tokens).any(1)
        asked = (moved & (proposal.log_q > -torch.inf)).nonzero()[:, 0]
        tau = temperature if isinstance(temperature, Tensor) else torch.full_like(proposal.log_q, temperature)
        log_ratio = torch.where(moved, -torch.inf, 0.0).double()
        accepted, rows, after = ~moved, proposal.rows, state
        if len(asked):
            after, found, taken_over, spent = self._decide(model, state, proposal, asked, tau[asked], uniforms[asked])
            log_ratio[asked], accepted[asked], rows = found, taken_over, rows + spent
        changed = state.sequences.changes(after.sequences)
        return replace(after, step=state.step + 1), Info(accepted, log_ratio, proposal.positions, changed, rows)

    def _decide(
        self, model: MaskedLM, state: State, proposal: Proposal, asked: Tensor, tau: Tensor, uniforms: Tensor
    ) -> tuple[State, Tensor, Tensor, int]:
        """The new state; of the chains `asked` [K]: log ratio [K], accepted [K]; model rows."""
        assert state.evaluation is not None
        x, proposed, before = state.sequences.rows(asked), proposal.sequences.rows(asked), state.evaluation.terms[asked]
        near = _near(proposed, proposal.positions[asked], self.terms)
        masked, _ = divided(self.energy)
        known = proposal.known and Known(proposal.known.positions[asked], proposal.known.logits[asked])
        tally = Tally(masked, proposed, state.evaluation.conditionals is not None, known)
        chain, position = (near & tally.todo).nonzero(as_tuple=True)
        with chains_named(asked):
            tally.ask(model, chain, position)
        gain = torch.where(near, tally.terms - before, 0.0).sum(1)
        first = proposal.log_q[asked] - gain / tau
        passed = accept(first, uniforms[:, -2])
        if not bool(passed.any()):
            return state, first, passed, len(chain)

        through, index = passed.nonzero()[:, 0], asked[passed]

        def second(of: Tensor, energy: Tensor) -> Tensor:
            return (state.energy[index[of]] + gain[through[of]] - energy) / tau[through[of]]

        def stop(of: Tensor, partial: Tensor) -> Tensor:
            if not (self.early_rejection and is_bounded(self.energy)):
                return partial == torch.inf
            return hopeless(second(of, partial), uniforms[through[of], -1])

        order = promising_order(x.rows(through), proposed.rows(through), before[through])
        with chains_named(index):
            evaluation = finish(model, self.energy, proposed.rows(through), tally.part(through), order, stop)
        ratio = second(torch.arange(len(index), device=index.device), evaluation.energy)
        accepted = accept(ratio, uniforms[through, -1])
        after = taken(state, proposal.sequences, index, evaluation, accepted)
        log_ratio = first.index_copy(0, through, first[through].clamp(max=0) + ratio)
        return after, log_ratio, passed.index_copy(0, through, accepted), len(chain) + evaluation.rows

    def signature(self) -> str:
        return describe(self)


def _near(sequences: Sequences, positions: Tensor, count: int) -> Tensor:
    """[C, T] bool: `positions` [C, K] and the `count` other free positions nearest to any of them, the left one first.

    Depends on which positions are free and which are proposed, in any order, and on no token.
    """
    chosen = torch.zeros_like(sequences.free).scatter(1, positions, True) & sequences.free
    places = torch.arange(sequences.width, device=positions.device)
    apart = (places[None, :, None] - positions[:, None, :]).abs().amin(2)
    others = sequences.free & ~chosen
    ranks = torch.where(others, apart, sequences.width).argsort(dim=1, stable=True).argsort(dim=1)
    return chosen | (others & (ranks < count))
