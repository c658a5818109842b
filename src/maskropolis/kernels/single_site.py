"""Single-site Metropolis–Hastings with the model's own masked conditionals as proposals.

    accept with min(1, exp(−(E(x') − E(x)) / τ) · q_t(x_t) / q_t(x'_t)),    q_t = softmax(f_t(x_∖t) / τ_q)

x'_∖t = x_∖t, so forward and reverse density come from one conditional.
Goyal, Dyer & Berg-Kirkpatrick (2022), arXiv 2106.02736, algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maskropolis.kernels.base import Info, Proposal, State, describe, propose_and_decide, register
from maskropolis.kernels.proposal import MaskedProposal, at
from maskropolis.kernels.scan import next_position, require_scan
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import fits
from maskropolis.targets.energy import NORM, Energy, Known, conditionals_at
from maskropolis.targets.steered import allowed_at


@register("single-site", exact=True)
@dataclass(frozen=True)
class SingleSite:
    """At most n−1 model rows a chain and step: the conditional at t is kept from the last energy evaluation, and the
    row masked at t is the same for x and x'. Where the conditionals exceed the memory budget, this row is computed
    anew. With the norm energy, a proposal is rejected as soon as the running sum of E(x') decides it.

    `keep_conditionals`, `reuse_row` and `early_rejection` switch the shortcuts; the chain stays the same.
    """

    variants: ClassVar[tuple[str, ...]] = (
        "single-site:scan=left-to-right",
        "single-site:scan=right-to-left",
        "single-site:scan=back-and-forth",
        "single-site:proposal_temperature=1.7",
        "single-site:top_k=2",
    )
    energy: Energy = NORM
    proposal: MaskedProposal = MaskedProposal()
    scan: str = "random"
    keep_conditionals: bool = True
    reuse_row: bool = True
    early_rejection: bool = True

    def __post_init__(self) -> None:
        require_scan(self.scan)

    @property
    def uniforms_per_step(self) -> int:
        return 3  # position, token, acceptance

    def steps_per_sweep(self, free: int) -> int:
        return free

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        keep = self.keep_conditionals and fits(model, sequences)
        return State(sequences, self.energy.evaluate(model, sequences, keep=keep))

    def propose(self, model: MaskedLM, state: State, uniforms: Tensor) -> Proposal:
        """One position of each chain; `uniforms` [C, 3]."""
        assert state.evaluation is not None
        x, kept = state.sequences, state.evaluation.conditionals
        t = next_position(x, self.scan, state.step, uniforms[:, 0])
        logits = conditionals_at(model, x, t) if kept is None else kept.at(t)
        log_q = self.proposal.log_prob(logits, allowed_at(self.energy, model, x, t))
        old, new = x.tokens_at(t), draw(log_q, uniforms[:, 1])
        return Proposal(
            x.with_tokens(t, new),
            log_q=at(log_q, old) - at(log_q, new),
            positions=t[:, None],
            known=Known(t, logits) if self.reuse_row else None,
            rows=len(x) if kept is None else 0,
        )

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, 3]."""
        return propose_and_decide(self, model, state, temperature, uniforms)

    def signature(self) -> str:
        return describe(self)
