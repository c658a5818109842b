"""The optimiser and the learning rate: AdamW with warm-up, then linear decay to zero at the end of the budget.

Loshchilov & Hutter (2019), decoupled weight decay; Goyal et al. (2017), gradual warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from maskropolis.errors import InputError

BETAS = (0.9, 0.98)
EPSILON = 1e-6


@dataclass(frozen=True)
class Budget:
    """When training ends: after `steps`, or after `seconds` of training if that comes first."""

    steps: int
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"the number of steps is {self.steps}; expected at least 1")
        if self.seconds is not None and self.seconds <= 0:
            raise InputError(f"the time limit is {self.seconds / 60:g} minutes; expected more than 0")

    def spent(self, step: int, seconds: float) -> float:
        """The share of the budget that is used up, 0 to 1."""
        share = step / self.steps
        if self.seconds is not None:
            share = max(share, seconds / self.seconds)
        return min(1.0, share)


def rate(peak: float, warmup: int, step: int, spent: float) -> float:
    """The learning rate of a step: rises over `warmup` steps, falls linearly with the budget."""
    rise = min(1.0, (step + 1) / warmup) if warmup > 0 else 1.0
    return peak * rise * (1.0 - spent)


def adamw(model: nn.Module, peak: float, weight_decay: float) -> torch.optim.AdamW:
    """Fused AdamW; biases and normalisation weights (one-dimensional) are not decayed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=peak, betas=BETAS, eps=EPSILON, fused=True)
