"""The masked conditionals of a batch of chains, kept from one energy evaluation for the next proposals."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences


@dataclass(frozen=True, eq=False)
class Conditionals:
    """Logits f_t(x_∖t) of every free position.

    Attributes:
        logits: [C, n, V], n the largest number of free positions; a chain's free positions in order.
        slot: [C, T] int64, where in the n a position stands (0 at positions that are not free).
    """

    logits: Tensor
    slot: Tensor

    @classmethod
    def empty(cls, sequences: Sequences, vocabulary_size: int, dtype: torch.dtype) -> Conditionals:
        slot = slots(sequences)
        most = int(sequences.free_counts.max()) if len(sequences) else 0
        shape = (len(sequences), most, vocabulary_size)
        return cls(torch.zeros(shape, dtype=dtype, device=sequences.device), slot)

    def at(self, positions: Tensor) -> Tensor:
        """Logits [C, V] at `positions` [C], or [C, K, V] at [C, K]."""
        chains = torch.arange(len(positions), device=positions.device)
        if positions.dim() == 1:
            return self.logits[chains, self.slot[chains, positions]]
        return self.logits[chains[:, None], self.slot.gather(1, positions)]

    def replaced(self, chains: Tensor, other: Conditionals) -> Conditionals:
        """A copy in which `chains` ([K] int64) hold the K rows of `other`, whose n may be smaller or larger."""
        logits, common = self.logits.clone(), min(self.logits.shape[1], other.logits.shape[1])
        logits[chains, :common] = other.logits[:, :common]
        return Conditionals(logits, self.slot)

    def rows(self, index: Tensor) -> Conditionals:
        return Conditionals(self.logits[index], self.slot[index])


def slots(sequences: Sequences) -> Tensor:
    """[C, T] int64, the rank of each free position among the free positions of its chain."""
    return (sequences.free.long().cumsum(1) - 1).clamp(min=0)


def free_in_order(sequences: Sequences) -> Tensor:
    """[C, n] int64: the free positions of each chain in order, then others; n the largest number of them."""
    most = int(sequences.free_counts.max())
    return torch.argsort((~sequences.free).to(torch.uint8), dim=1, stable=True)[:, :most]


def fits(model: MaskedLM, sequences: Sequences) -> bool:
    """Whether the conditionals of all chains stay within the model's memory budget (float32)."""
    if not len(sequences):
        return True
    entries = len(sequences) * int(sequences.free_counts.max()) * model.vocabulary_size
    return 4 * entries <= model.budget.conditionals
