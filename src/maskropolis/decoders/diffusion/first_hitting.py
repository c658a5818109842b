"""First-hitting sampling: the reverse process from event to event, exact and without time steps.

    With m masks left at time t, the next of them is written at the time t′ with 1 − α(t′) = (1 − α(t)) · u^(1/m), and
    it is a uniformly chosen one: draw it from its conditional given everything visible; repeat n times.

The network takes no time, so the times themselves change nothing and are not drawn: what is left is a uniformly random
order, the sampler of an any-order autoregressive model, whatever the noise schedule. n rows a chain. It is the limit
T → ∞ of ancestral sampling. Zheng et al. (2024), *Masked Diffusion Models are Secretly Time-Agnostic Masked Models*.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.decoders.writing import Writing, write
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import pick
from maskropolis.sequences import Sequences


@dataclass(frozen=True)
class FirstHitting:
    """As many steps as there are masks."""

    writing: Writing = Writing()
    name: str = "first-hitting"

    def steps(self, masks: int) -> int:
        return masks

    def step(
        self, model: MaskedLM, sequences: Sequences, block: Tensor, step: int, steps: int, uniforms: Tensor
    ) -> tuple[Sequences, int]:
        """See `Reverse`. Uniforms: 0 of the first position which mask, 1 of each its token."""
        hidden = block & (sequences.tokens == model.mask_token)
        chain = hidden.any(1).nonzero()[:, 0]
        rank = pick(hidden[chain].sum(1), uniforms[chain, 0, 0]) if len(chain) else chain
        chosen = torch.zeros_like(hidden)
        chosen[chain] = hidden[chain] & (hidden[chain].long().cumsum(1) - 1 == rank[:, None])
        return write(model, sequences, chosen, self.writing, uniforms[..., 1])

    def signature(self) -> str:
        return "first-hitting"
