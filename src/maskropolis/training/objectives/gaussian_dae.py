"""Denoising of embeddings: Gaussian noise of level σ on each token's vector; say which token it was.

    x̃_t = e(w_t) + σ ε,    log σ uniform between the two ends, one σ a row
    loss = E −log p(w_t | x̃),   the mean over noisy positions, in nats

The cross-entropy is least where p(w | x̃) is the true posterior, at every σ whatever its weight. The mean of that
posterior, Σ_w p(w | x̃) e(w), is the denoiser that squared error would look for (Vincent 2011), so the score follows
from it; but unlike squared error it also decodes, its gradient does not vanish where a vector is far off, and it is
measured in nats. Dieleman et al. (2022), CDCD, section 3.1.

A share of the rows is masked instead, which is noise without end (σ = ∞), at a rate uniform in (0, 1): the model stays
a masked LM. In a share of the noisy rows, a part of the tokens, uniform in size, stays visible: the model learns to
work from context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from maskropolis.errors import InputError
from maskropolis.training.objectives.base import Corrupted, Vocabulary
from maskropolis.training.objectives.times import hide, spread_times


@dataclass(frozen=True)
class GaussianDae:
    """`low`, `high`: the range of σ, in lengths of an embedding. `masks`: share of rows with masks; `visible`: share of
    the others that keep a part of their tokens. Raises `InputError`."""

    low: float = 0.1
    high: float = 4.0
    masks: float = 0.25
    visible: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < math.inf:
            raise InputError(f"the range of σ is {self.low:g} to {self.high:g}; expected 0 < low ≤ high")
        for name in ("masks", "visible"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"the share of rows '{name}' is {getattr(self, name):g}; expected 0 to 1")

    def corrupt(
        self, tokens: np.ndarray, starts: np.ndarray, vocabulary: Vocabulary, random: np.random.Generator
    ) -> Corrupted:
        """See `Objective`."""
        rows = len(tokens)
        levels = self.low * (self.high / self.low) ** spread_times(rows, random)
        masked = random.random(rows) < self.masks
        partly = masked | (random.random(rows) < self.visible)
        rates = np.where(partly, 1.0 - random.random(rows), 1.0)
        chosen = hide(vocabulary.eligible(tokens), rates, random)
        seen = np.where(chosen & masked[:, None], vocabulary.mask, tokens)
        sigmas = np.where(chosen, np.where(masked, np.inf, levels)[:, None], 0.0).astype(np.float32)
        keys = random.integers(0, 1 << 63, rows)
        total = float(max(1, chosen.sum()))
        return Corrupted(seen, chosen, total, impossible=vocabulary.mask, sigmas=sigmas, keys=keys)
