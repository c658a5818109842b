"""The degenerate Gibbs sampler: the single-site proposal, always accepted.

    x'_t ~ softmax(f_t(x_∖t) / τ),    x'_∖t = x_∖t

The masked conditionals of an MLM need not be the conditionals of any joint distribution, so this kernel has no declared
target: a baseline, not a sampler. Wang & Cho (2019), arXiv 1902.04094 and its erratum, with their top-k and
temperature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.kernels.base import Info, State, describe, register
from maskropolis.kernels.proposal import MaskedProposal
from maskropolis.kernels.scan import next_position, require_scan
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import Energy, conditionals_at
from maskropolis.targets.steered import allowed_at, supported


@register("gibbs", exact=False)
@dataclass(frozen=True)
class Gibbs:
    """One model row a chain and step. It tracks no energy; `energy` only names the one that results are shown with.

    The temperature of the run multiplies that of the proposal: without an energy it can act on nothing else. Hard
    constraints hold: a token that only the whole text forbids is not taken. Experts are not heard.
    """

    variants: ClassVar[tuple[str, ...]] = ("gibbs:scan=left-to-right", "gibbs:top_k=2")

    energy: Energy | None = None
    proposal: MaskedProposal = MaskedProposal()
    scan: str = "random"

    def __post_init__(self) -> None:
        require_scan(self.scan)

    @property
    def uniforms_per_step(self) -> int:
        return 2  # position, token

    def steps_per_sweep(self, free: int) -> int:
        return free

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        return State(sequences)

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """One position of each chain; `uniforms` [C, 2]."""
        x = state.sequences
        t = next_position(x, self.scan, state.step, uniforms[:, 0])
        logits = conditionals_at(model, x, t).double()
        tau = temperature[:, None] if isinstance(temperature, Tensor) else temperature
        allowed, old = allowed_at(self.energy, model, x, t), x.tokens_at(t)
        new = draw(self.proposal.log_prob(logits / tau, allowed), uniforms[:, 1])
        new = torch.where(supported(self.energy, x.with_tokens(t, new)), new, old)
        changed = (new != old).long()
        always = torch.ones(len(x), dtype=torch.bool, device=x.device)
        info = Info(always, torch.zeros(len(x), dtype=torch.float64, device=x.device), t[:, None], changed, len(x))
        return replace(state, sequences=x.with_tokens(t, new), step=state.step + 1), info

    def signature(self) -> str:
        return describe(self)
