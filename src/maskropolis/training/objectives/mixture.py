"""Two objectives in turn: each batch follows one or the other, so that the same weights serve both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskropolis.errors import InputError
from maskropolis.training.objectives.base import Corrupted, Objective, Vocabulary


@dataclass(frozen=True)
class Mixture:
    """A batch follows `second` with probability `share`, else `first`."""

    first: Objective
    second: Objective
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InputError(f"the share of the second objective is {self.share:g}; expected 0 to 1")

    def corrupt(
        self, tokens: np.ndarray, starts: np.ndarray, vocabulary: Vocabulary, random: np.random.Generator
    ) -> Corrupted:
        """See `Objective`."""
        objective = self.second if random.random() < self.share else self.first
        return objective.corrupt(tokens, starts, vocabulary, random)
