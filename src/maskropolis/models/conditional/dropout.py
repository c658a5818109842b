"""Dropout with cheap random numbers on the CPU: one byte of SFC64 an element instead of one Bernoulli draw.

With torch's own dropout a training step spends an eighth of its time drawing (width 256, bfloat16). The probability is
rounded to the next 1/256 and the scale uses the rounded one, so the expectation is exact. Seeded by torch's generator.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ByteDropout(nn.Dropout):
    """`nn.Dropout` on other devices than the CPU; there, a byte an element decides."""

    def forward(self, input: Tensor) -> Tensor:
        dropped = round(256 * self.p)
        if not self.training or dropped == 0:
            return input
        if input.device.type != "cpu":
            return F.dropout(input, self.p, True)
        seed = int(torch.randint(1 << 62, ()))
        words = np.random.SFC64(seed).random_raw(-(-input.numel() // 8))
        drawn = torch.from_numpy(words.view(np.int8))[: input.numel()].view(input.shape)
        threshold = dropped - 128  # a byte below it drops the element: `dropped` of the 256 values
        kept = drawn.clamp_(threshold - 1, threshold).sub_(threshold - 1)
        return input * kept.to(input.dtype).mul_(256 / (256 - dropped))
