"""Hamming distance to a reference: E = number of places where the tokens differ, plus the difference in length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.sequences import Sequences
from maskropolis.targets.experts import COUNTING


@dataclass(frozen=True)
class Hamming:
    """`reference` are the token ids of the text to stay near, special tokens included."""

    cost: ClassVar[int] = COUNTING
    bounded: ClassVar[bool] = True
    repels: ClassVar[bool] = True
    text: str
    reference: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"hamming:{self.text}"

    def energy(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        common = min(sequences.width, len(self.reference))
        wanted = torch.tensor(self.reference[:common], device=sequences.device)
        same = (sequences.tokens[:, :common] == wanted) & sequences.attention[:, :common]
        longer = sequences.lengths.clamp(min=len(self.reference))
        return (longer - same.sum(1)).double()
