"""The continuous-time bound of masked diffusion, −log p(x) ≤ ∫_0^1 w(t) E[ Σ_{i masked} −log p(x_i | z_t) ] dt.

    w(t) = −α′(t) / (1 − α(t));  each eligible position is masked with probability 1 − α(t)

SUBS: the mask token is never predicted, visible tokens are carried over. The loss is the bound in nats per eligible
token. The expectation is the same for every schedule; its variance is not. Sahoo et al. (2024), equation 10; Shi et al.
(2024), MD4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskropolis.targets.diffusion.noise import noise_by_name
from maskropolis.training.objectives.base import Corrupted, Vocabulary
from maskropolis.training.objectives.times import hide, spread_times


@dataclass(frozen=True)
class Mdlm:
    """`noise`: a schedule of `maskropolis.targets.diffusion.noise`."""

    noise: str = "log-linear"

    def __post_init__(self) -> None:
        noise_by_name(self.noise)

    def corrupt(
        self, tokens: np.ndarray, starts: np.ndarray, vocabulary: Vocabulary, random: np.random.Generator
    ) -> Corrupted:
        """See `Objective`."""
        noise, time = noise_by_name(self.noise), spread_times(len(tokens), random)
        eligible = vocabulary.eligible(tokens)
        chosen = hide(eligible, 1.0 - noise.alpha(time), random)
        weights = np.broadcast_to(noise.weight(time)[:, None], tokens.shape)
        seen = np.where(chosen, vocabulary.mask, tokens)
        return Corrupted(seen, chosen, float(max(1, eligible.sum())), weights, vocabulary.mask)
