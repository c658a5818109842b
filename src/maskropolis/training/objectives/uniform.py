"""Pure masking at a rate drawn uniformly for each sequence: what absorbing diffusion and Mask-Predict need.

Ghazvininejad et al. (2019), Mask-Predict, section 3.2 (number of masked tokens uniform); Austin et al. (2021), D3PM;
Sahoo et al. (2024), MDLM (rate uniform in (0, 1]).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskropolis.errors import InputError
from maskropolis.training.objectives.base import Corrupted, Vocabulary, check_rate
from maskropolis.training.objectives.choosing import choice


@dataclass(frozen=True)
class UniformRate:
    """Every chosen position becomes the mask token; the rate of each sequence is uniform in (low, high]."""

    low: float = 0.0
    high: float = 1.0
    choose: str = "token"

    def __post_init__(self) -> None:
        check_rate(self.high, "upper mask rate")
        choice(self.choose)
        if not 0 <= self.low <= self.high:
            raise InputError(
                f"the range of mask rates is {self.low:g} to {self.high:g}; expected 0 <= low <= high <= 1"
            )

    def corrupt(
        self, tokens: np.ndarray, starts: np.ndarray, vocabulary: Vocabulary, random: np.random.Generator
    ) -> Corrupted:
        """See `Objective`."""
        rates = self.high - (self.high - self.low) * random.random(len(tokens))  # (low, high]: random() is in [0, 1)
        chosen = choice(self.choose)(vocabulary.eligible(tokens), starts, rates, random)
        return Corrupted(np.where(chosen, vocabulary.mask, tokens), chosen, float(chosen.sum()))
