"""Several processes training one model: each takes a share of the rows of a batch, and the gradients are added up.

The losses of the shares are divided by the normaliser of the whole batch, so that the sum of the gradients is the
gradient of one process up to rounding. All processes then make the same update. Started by `accelerate launch` or
`torchrun`; a process alone is a team of one, for which nothing here does anything.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import Tensor, nn


class Team:
    """What the processes tell each other in a step."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._buffer: Tensor | None = None

    def add(self, model: nn.Module, loss: float) -> float:
        """Replaces each gradient by its sum over the processes; returns the sum of their losses."""
        if self._accelerator.num_processes == 1:
            return loss
        parameters = [p for p in model.parameters() if p.requires_grad]
        flat = self._flat(sum(p.numel() for p in parameters) + 1)
        flat[-1] = loss
        first = 0
        for parameter in parameters:
            part = flat[first : first + parameter.numel()].view_as(parameter)
            part.zero_() if parameter.grad is None else part.copy_(parameter.grad)
            parameter.grad = part
            first += parameter.numel()
        torch.distributed.all_reduce(flat)
        return float(flat[-1])

    def agree(self, seconds: float, stop: bool) -> tuple[float, bool]:
        """The clock of the first process, and whether any was asked to stop."""
        if self._accelerator.num_processes == 1:
            return seconds, stop
        told = torch.tensor([seconds if self._accelerator.is_main_process else 0.0, float(stop)], dtype=torch.float64)
        told = told.to(self._accelerator.device)
        torch.distributed.all_reduce(told)
        return float(told[0]), bool(told[1])

    def _flat(self, size: int) -> Tensor:
        """One buffer for all gradients, kept from step to step."""
        if self._buffer is None:
            self._buffer = torch.empty(size, device=self._accelerator.device)
        return self._buffer
