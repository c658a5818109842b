"""The discrete Langevin proposal with its Metropolis correction (DMALA): all positions at once, each from its gradient.

    q(x'|x) = Π_s softmax_w( -d(s, w) / (2τ) - 1[w ≠ x_s] / α ),    d(s, w) = ∂E/∂x_s · (onehot(w) - x_s)
    accept with min(1, exp(-(E(x') - E(x)) / τ) · q(x|x') / q(x'|x))

The paper's penalty |x' - x|² / (2α) is 1/α for each one-hot that changes: the step size α says how many do.
Zhang, Liu & Liu (2022), A Langevin-like Sampler for Discrete Distributions, ICML, algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.kernels.base import Info, State, describe, register
from maskropolis.kernels.gradient.first_order import Move, Surroundings, initial, step_by_gradient
from maskropolis.kernels.proposal import MaskedProposal, at
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw, pick
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import free_in_order
from maskropolis.targets.energy import NORM, Energy


@register("discrete-langevin", exact=True)
@dataclass(frozen=True)
class DiscreteLangevin:
    """3n model rows a chain and step: n forward, and a backward pass through each, which counts as two; none if nothing
    changes.

    `step_size` is α. In a chain of more than k free positions, k neighbours on a ring, chosen at random, may change in
    a step. With constraints, proposals keep to those that look at one position only; the others reject.
    """

    variants: ClassVar[tuple[str, ...]] = ("discrete-langevin:step_size=2,k=2,top_k=2,proposal_temperature=1.7",)
    energy: Energy = NORM
    proposal: MaskedProposal = MaskedProposal()
    step_size: float = 0.15
    k: int = 64

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_size) and self.step_size > 0):
            raise InputError(f"step size {self.step_size} is out of range; expected a positive finite number")
        if self.k < 1:
            raise InputError(f"k = {self.k} positions a step are out of range; expected at least 1")

    @property
    def uniforms_per_step(self) -> int:
        return self.k + 2  # which positions, tokens, acceptance

    def steps_per_sweep(self, free: int) -> int:
        return -(-free // self.k)

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        return initial(self, model, sequences)

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, k + 2]."""
        return step_by_gradient(self, model, state, temperature, uniforms)

    def propose_around(self, x: Surroundings, uniforms: Tensor) -> Move:
        """New tokens at up to k positions of each chain; `uniforms` [C, ≥ k + 1]."""
        positions, used = self._positions(x.sequences, uniforms[:, 0])
        proposed, log_q = x.sequences, torch.zeros_like(x.temperature)
        for j, t in enumerate(positions.T):
            log_q_j = self._log_q(x, t)
            new = torch.where(used[:, j], draw(log_q_j, uniforms[:, 1 + j]), proposed.tokens_at(t))
            proposed = proposed.with_tokens(t, new)
            log_q += torch.where(used[:, j], at(log_q_j, new), 0.0)
        return Move(proposed, log_q, positions)

    def log_q_back(self, after: Surroundings, move: Move, before: Sequences) -> Tensor:
        """[C] float64, log q(x|x') over the same positions."""
        used = torch.arange(move.positions.shape[1], device=before.device) < before.free_counts[:, None]
        log_q = torch.zeros_like(after.temperature)
        for j, t in enumerate(move.positions.T):
            log_q += torch.where(used[:, j], at(self._log_q(after, t), before.tokens_at(t)), 0.0)
        return log_q

    def _log_q(self, x: Surroundings, positions: Tensor) -> Tensor:
        """[C, V] float64, normalised: the moves at `positions` [C], and to stay."""
        weights = x.log_weights(positions, alone=True) - 1 / self.step_size
        return weights.scatter(1, x.sequences.tokens_at(positions)[:, None], 0.0).log_softmax(1)

    def _positions(self, sequences: Sequences, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Positions [C, K] and which of them count [C, K], those first; a chain of fewer than k has all of its own."""
        order, counts = free_in_order(sequences), sequences.free_counts
        ranks = torch.arange(min(self.k, order.shape[1]), device=order.device).expand(len(order), -1)
        start = pick(torch.where(counts > self.k, counts, 1), uniforms)
        chosen = order.gather(1, (start[:, None] + ranks) % counts.clamp(min=1)[:, None])
        return chosen, ranks < counts[:, None]

    def signature(self) -> str:
        return describe(self)
