"""The BERT objective: 15% of the positions are chosen; 80% of those are masked, 10% replaced, 10% kept.

Devlin, Chang, Lee & Toutanova (2019), BERT, section 3.1. The masks are drawn anew each time (Liu et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskropolis.errors import InputError
from maskropolis.training.objectives.base import Corrupted, Vocabulary, check_rate
from maskropolis.training.objectives.choosing import choice


@dataclass(frozen=True)
class Bert:
    """`rate`: share of positions chosen. Of those, `masked` become the mask token and `replaced` a random token."""

    rate: float = 0.15
    masked: float = 0.8
    replaced: float = 0.1
    choose: str = "token"

    def __post_init__(self) -> None:
        check_rate(self.rate)
        choice(self.choose)
        if min(self.masked, self.replaced) < 0 or self.masked + self.replaced > 1 + 1e-9:
            raise InputError(
                f"the shares masked ({self.masked:g}) and replaced ({self.replaced:g}) must be at least 0 "
                "and add up to at most 1; the rest is kept"
            )

    def corrupt(
        self, tokens: np.ndarray, starts: np.ndarray, vocabulary: Vocabulary, random: np.random.Generator
    ) -> Corrupted:
        """See `Objective`."""
        rates = np.full(len(tokens), self.rate)
        chosen = choice(self.choose)(vocabulary.eligible(tokens), starts, rates, random)
        fate = random.random(tokens.shape)
        other = vocabulary.ordinary[random.integers(0, len(vocabulary.ordinary), tokens.shape)]
        seen = np.where(chosen & (fate < self.masked), vocabulary.mask, tokens)
        seen = np.where(chosen & (fate >= self.masked) & (fate < self.masked + self.replaced), other, seen)
        return Corrupted(seen, chosen, float(chosen.sum()))
