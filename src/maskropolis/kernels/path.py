"""Path Metropolis–Hastings: k single-site draws one after another, then one energy evaluation and one decision.

    x = x⁰ → x¹ → … → x^k = x',    x^i from x^(i−1) by drawing position s_i from q_i = q(· | x^(i−1)_∖s_i)
    accept with min(1, exp(−(E(x') − E(x)) / τ) · Π_i q_i(x^(i−1)_{s_i}) / q_i(x^i_{s_i}))

The way back visits s_k, …, s_1. Its draw at s_i starts from x^i, whose conditional at s_i is that of x^(i−1), since the
two differ at s_i only: so each draw gives both densities. The positions are distinct and chosen without looking at the
tokens, an order as likely as its reverse; so detailed balance holds for each pair of an order and its reverse, and for
the sum over orders. Unlike a masked block, later draws see earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.kernels.base import Info, Proposal, State, chains_named, describe, propose_and_decide, register
from maskropolis.kernels.block import contiguous_block, scattered_block
from maskropolis.kernels.proposal import MaskedProposal, at
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw, pick
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import fits
from maskropolis.targets.energy import NORM, Energy, Known, conditionals_at
from maskropolis.targets.steered import allowed_at


@register("path", exact=True)
@dataclass(frozen=True)
class Path:
    """At most n+k−2 model rows a chain and step: the first conditional is kept from the last evaluation, the last one
    is a conditional of x'. A chain with fewer than k free positions visits all of them.

    `contiguous` walks over k neighbours, to the right or to the left, else k positions are drawn without replacement.
    """

    variants: ClassVar[tuple[str, ...]] = (
        "path:k=2",
        "path:contiguous=yes",
        "path:k=9,proposal_temperature=0.6,top_k=2",
    )
    energy: Energy = NORM
    proposal: MaskedProposal = MaskedProposal()
    k: int = 4
    contiguous: bool = False
    early_rejection: bool = True

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"path length k = {self.k} is out of range; expected at least 1")

    @property
    def uniforms_per_step(self) -> int:
        return self._for_positions + self.k + 1  # positions, tokens, acceptance

    @property
    def _for_positions(self) -> int:
        return 2 if self.contiguous else self.k  # start and direction, or each position

    def steps_per_sweep(self, free: int) -> int:
        return -(-free // self.k)

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        return State(sequences, self.energy.evaluate(model, sequences, keep=fits(model, sequences)))

    def propose(self, model: MaskedLM, state: State, uniforms: Tensor) -> Proposal:
        """One path of each chain; `uniforms` [C, uniforms_per_step]."""
        assert state.evaluation is not None
        x, kept, rows = state.sequences, state.evaluation.conditionals, 0
        positions, used = self._positions(x, uniforms)
        log_q = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        last: Known | None = None
        for j in range(positions.shape[1]):
            t, index = positions[:, j], (used[:, j] & (log_q > -torch.inf)).nonzero()[:, 0]
            if not len(index):
                break
            if j == 0 and kept is not None:
                logits = kept.at(t)
            else:
                with chains_named(index):
                    logits = conditionals_at(model, x.rows(index), t[index])
                rows += len(index)
            log_q_j = self.proposal.log_prob(logits, allowed_at(self.energy, model, x.rows(index), t[index]))
            old, new = x.tokens_at(t)[index], draw(log_q_j, uniforms[index, self._for_positions + j])
            log_q[index] += at(log_q_j, old) - at(log_q_j, new)
            x = x.with_tokens(t, x.tokens_at(t).index_copy(0, index, new))
            last = _known(last, t, index, logits)
        return Proposal(x, log_q, positions, last, rows)

    def _positions(self, sequences: Sequences, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Positions [C, k] in the order of the visit and which of them count [C, k], those first."""
        k = min(self.k, int(sequences.free_counts.max()))
        if not self.contiguous:
            return scattered_block(sequences, k, uniforms)
        block, used = contiguous_block(sequences, k, uniforms)
        backwards = pick(torch.full_like(block[:, 0], 2), uniforms[:, 1]) == 1
        ranks = torch.arange(k, device=block.device).expand_as(block)
        turned = (used.sum(1, keepdim=True) - 1 - ranks).clamp(min=0)
        return block.gather(1, torch.where(backwards[:, None], turned, ranks)), used

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, uniforms_per_step]."""
        return propose_and_decide(self, model, state, temperature, uniforms)

    def signature(self) -> str:
        return describe(self)


def _known(before: Known | None, positions: Tensor, index: Tensor, logits: Tensor) -> Known:
    """The last conditional that each chain met: `logits` at `positions` for the chains `index`, else as before."""
    if before is None:
        return Known(positions, logits)
    return Known(before.positions.index_copy(0, index, positions[index]), before.logits.index_copy(0, index, logits))
