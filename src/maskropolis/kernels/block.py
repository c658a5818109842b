"""Block Metropolis–Hastings: mask k free positions at once and draw each from its conditional.

    accept with min(1, exp(−(E(x') − E(x)) / τ) · Π_{s∈S} q_s(x_s) / q_s(x'_s)),    q_s = softmax(f_s(x_∖S) / τ_q)

The set S is chosen without looking at the tokens, and x'_∖S = x_∖S, so one forward pass gives both densities.
Goyal, Dyer & Berg-Kirkpatrick (2022), arXiv 2106.02736, section on block proposals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.kernels.base import Info, Proposal, State, describe, propose_and_decide, register
from maskropolis.kernels.proposal import MaskedProposal, at
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw, pick
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import free_in_order
from maskropolis.targets.energy import NORM, Energy, block_conditionals
from maskropolis.targets.steered import allowed_at


@register("block", exact=True)
@dataclass(frozen=True)
class Block:
    """At most n+1 model rows a chain and step. A chain with fewer than k free positions uses all of them.

    `contiguous` takes k neighbours in the order of the free positions, else k are drawn without replacement.
    """

    variants: ClassVar[tuple[str, ...]] = (
        "block:k=3",
        "block:contiguous=yes",
        "block:k=9,proposal_temperature=0.6,top_k=2",
    )
    energy: Energy = NORM
    proposal: MaskedProposal = MaskedProposal()
    k: int = 2
    contiguous: bool = False
    early_rejection: bool = True

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"block size k = {self.k} is out of range; expected at least 1")

    @property
    def uniforms_per_step(self) -> int:
        return self._for_positions + self.k + 1  # positions, tokens, acceptance

    @property
    def _for_positions(self) -> int:
        return 1 if self.contiguous else self.k

    def steps_per_sweep(self, free: int) -> int:
        return -(-free // self.k)

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        return State(sequences, self.energy.evaluate(model, sequences))

    def propose(self, model: MaskedLM, state: State, uniforms: Tensor) -> Proposal:
        """One block of each chain; `uniforms` [C, uniforms_per_step]."""
        x, first = state.sequences, self._for_positions
        choose = contiguous_block if self.contiguous else scattered_block
        block, used = choose(x, min(self.k, int(x.free_counts.max())), uniforms[:, :first])
        logits = block_conditionals(model, x, block)
        old, new = x.tokens_at(block), torch.empty_like(block)
        log_q = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for j in range(block.shape[1]):
            allowed = allowed_at(self.energy, model, x, block[:, j], alone=True)
            log_q_j = self.proposal.log_prob(logits[:, j], allowed)
            new[:, j] = draw(log_q_j, uniforms[:, first + j])
            log_q += torch.where(used[:, j], at(log_q_j, old[:, j]) - at(log_q_j, new[:, j]), 0.0)
        new = torch.where(used, new, new[:, :1])
        return Proposal(x.with_tokens(block, new), log_q, block, known=None, rows=len(x))

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, uniforms_per_step]."""
        return propose_and_decide(self, model, state, temperature, uniforms)

    def signature(self) -> str:
        return describe(self)


def scattered_block(sequences: Sequences, k: int, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """k free positions of each chain, uniform without replacement: positions [C, k] and which of them count [C, k].

    A chain with n < k free positions uses n; the others repeat its first. `uniforms` [C, ≥ k].
    """
    order, counts = free_in_order(sequences), sequences.free_counts
    for j in range(k):
        other = j + pick((counts - j).clamp(min=1), uniforms[:, j])
        other = other.clamp(max=order.shape[1] - 1)
        at_j, at_other = order[:, j].clone(), order.gather(1, other[:, None])[:, 0]
        order = order.scatter(1, other[:, None], at_j[:, None])
        order[:, j] = at_other
    return _repeat_first(order[:, :k], counts)


def contiguous_block(sequences: Sequences, k: int, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """k neighbours among the free positions of each chain, as `scattered_block`; `uniforms` [C, 1]."""
    order, counts = free_in_order(sequences), sequences.free_counts
    start = pick((counts - k + 1).clamp(min=1), uniforms[:, 0])
    ranks = (start[:, None] + torch.arange(k, device=order.device)).clamp(max=order.shape[1] - 1)
    return _repeat_first(order.gather(1, ranks), counts)


def _repeat_first(block: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    used = torch.arange(block.shape[1], device=block.device) < counts[:, None]
    return torch.where(used, block, block[:, :1]), used
