"""Gibbs-with-gradients: one (position, token) pair, by what the gradient says that the energy would become.

    Q(t, w | x) = exp(-d(t, w) / (2τ)) / Z(x),    d(t, w) = ∂E/∂x_t · (onehot(w) - x_t)
    accept with min(1, exp(-(E(x') - E(x)) / τ) · Q(t, x_t | x') / Q(t, w | x))

It is the locally balanced proposal of g(r) = √r with the ratio of the target to first order: `informed` weighs a pair
by its own masked conditional alone, here the terms of all other positions have their say.
Grathwohl, Swersky, Hashemi, Duvenaud & Maddison (2021), Oops I Took A Gradient, ICML, algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.kernels.base import Info, State, describe, register
from maskropolis.kernels.gradient.first_order import Move, Surroundings, initial, step_by_gradient
from maskropolis.kernels.proposal import MaskedProposal, at
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, Energy


@register("gwg", exact=True)
@dataclass(frozen=True)
class GibbsWithGradients:
    """3n model rows a chain and step: n forward, and a backward pass through each, which counts as two.

    The position is drawn from the sums of the weights, then the token at it. A chain without a move stays.
    """

    variants: ClassVar[tuple[str, ...]] = ("gwg:top_k=2,proposal_temperature=1.7",)
    energy: Energy = NORM
    proposal: MaskedProposal = MaskedProposal()

    @property
    def uniforms_per_step(self) -> int:
        return 3  # position, token, acceptance

    def steps_per_sweep(self, free: int) -> int:
        return free

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        return initial(self, model, sequences)

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, 3]."""
        return step_by_gradient(self, model, state, temperature, uniforms)

    def propose_around(self, x: Surroundings, uniforms: Tensor) -> Move:
        """One pair of each chain; `uniforms` [C, ≥ 2]."""
        sums, old = x.sums(), x.sequences
        stuck = sums.amax(1, keepdim=True) == -torch.inf
        t = draw(torch.where(stuck, old.free.double().log(), sums), uniforms[:, 0])
        here = torch.zeros(len(t), x.model.vocabulary_size, dtype=torch.float64, device=t.device)
        weights = torch.where(stuck, here.scatter(1, old.tokens_at(t)[:, None], 1.0).log(), x.log_weights(t))
        new = draw(weights, uniforms[:, 1])
        return Move(old.with_tokens(t, new), at(weights, new) - sums.logsumexp(1), t[:, None])

    def log_q_back(self, after: Surroundings, move: Move, before: Sequences) -> Tensor:
        """[C] float64, log Q(t, x_t | x')."""
        t = move.positions[:, 0]
        return at(after.log_weights(t), before.tokens_at(t)) - after.sums().logsumexp(1)

    def signature(self) -> str:
        return describe(self)
