"""No n tokens in a row twice: x_i … x_{i+n−1} ≠ x_j … x_{j+n−1} for all i < j.

Given x_∖t, a pair of windows that agree wherever t is not involved forbids at t the token with which they would agree:
x_{j+t−i} if t is in the first only, x_{i+t−j} if in the second only, and that same token if t is in both and the two
demands coincide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.sequences import Sequences


@dataclass(frozen=True)
class NoRepeat:
    """`n` ≥ 1. Special tokens and given context count like all others; mask tokens equal nothing."""

    alone: ClassVar[bool] = False
    of_text: ClassVar[bool] = False
    n: int
    vocabulary_size: int
    mask_token: int

    @property
    def name(self) -> str:
        return f"no-repeat:{self.n}"

    def holds(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        nowhere = torch.full((len(sequences),), -1, dtype=torch.long, device=sequences.device)
        return ~self._equal(sequences, nowhere).any(2).any(1)

    def allowed(self, sequences: Sequences, positions: Tensor) -> Tensor:
        good = torch.ones(len(sequences), self.vocabulary_size, dtype=torch.bool, device=sequences.device)
        chain, i, j = self._equal(sequences, positions).nonzero(as_tuple=True)
        t, tokens = positions[chain], sequences.tokens
        in_first, in_second = (t >= i) & (t < i + self.n), (t >= j) & (t < j + self.n)
        last = sequences.width - 1
        by_first = tokens[chain, (j + t - i).clamp(0, last)]
        by_second = tokens[chain, (i + t - j).clamp(0, last)]
        both = in_first & in_second
        agree = (in_first | in_second) & (~both | (by_first == by_second))
        good[chain[agree], torch.where(in_first, by_first, by_second)[agree]] = False
        return good

    def _equal(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """[C, M, M] bool, i < j: windows that are equal, a token at `positions` [C] taken for equal to any other."""
        tokens, width = sequences.tokens, sequences.width
        real = sequences.attention & (tokens != self.mask_token)
        wild = (torch.arange(width, device=tokens.device) == positions[:, None]) & sequences.attention
        real = real | wild
        same = tokens[:, :, None] == tokens[:, None, :]
        same = (same | wild[:, :, None] | wild[:, None, :]) & real[:, :, None] & real[:, None, :]
        count = max(0, width - self.n + 1)
        found = torch.ones(len(tokens), count, count, dtype=torch.bool, device=tokens.device)
        for k in range(min(self.n, width)):
            found &= same[:, k : k + count, k : k + count]
        return found.triu(1)
