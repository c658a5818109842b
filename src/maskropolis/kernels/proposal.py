"""The model's own masked conditionals as a proposal: softmax(f_t / τ_q) on the allowed vocabulary, or its top k."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.errors import InputError


@dataclass(frozen=True)
class MaskedProposal:
    """q_t(w) ∝ exp(f_t(w) / temperature) over the allowed tokens, restricted to the `top_k` likeliest if given.

    Outside this support q is 0 in both directions, so a move whose reverse is impossible has acceptance ratio 0.
    Raises `InputError` for a temperature that is not positive and finite, or a top-k below 1.
    """

    temperature: float = 1.0
    top_k: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(
                f"proposal temperature {self.temperature} is out of range; expected a positive finite number"
            )
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top-k {self.top_k} is out of range; expected at least 1")

    def log_prob(self, logits: Tensor, allowed: Tensor) -> Tensor:
        """Normalised log q [..., V] float64 for `logits` [..., V]; −inf outside the support."""
        scaled = logits.double().masked_fill(~allowed, -torch.inf) / self.temperature
        if self.top_k is not None and self.top_k < scaled.shape[-1]:
            best = scaled.topk(self.top_k, dim=-1)
            scaled = torch.full_like(scaled, -torch.inf).scatter(-1, best.indices, best.values)
        return scaled.log_softmax(-1)

    def signature(self) -> str:
        parts = [] if self.temperature == 1 else [f"proposal_temperature={self.temperature:g}"]
        return ",".join(parts + ([] if self.top_k is None else [f"top_k={self.top_k}"]))


def at(log_q: Tensor, tokens: Tensor) -> Tensor:
    """log q of `tokens` [C] from `log_q` [C, V]."""
    return log_q.gather(-1, tokens[..., None])[..., 0]
