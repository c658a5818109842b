"""The T-step variational bound of absorbing-state diffusion, its KL terms in closed form.

    −log p(x) ≤ Σ_{k=1}^T E KL(q(z_{k−1} | z_k, x) ‖ p(z_{k−1} | z_k)) = Σ_k u_k E[ Σ_{i masked} −log p(x_i | z_k) ]
    u_k = (α_{k−1} − α_k)/(1 − α_k);  each eligible position is masked with probability 1 − α_k

One step k is drawn for each row, so the weight is T · u_k; the loss is the bound in nats per eligible token. With
T = 1 and the highest mask rate r, z_1 hides each position with probability r and u_1 = 1: the denoising term is the
BERT objective with pure masking at the rate r. Austin et al. (2021), D3PM, equation 4 and appendix A.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskropolis.targets.diffusion.noise import noise_by_name, unmasking
from maskropolis.training.objectives.base import Corrupted, Vocabulary
from maskropolis.training.objectives.times import hide, spread_times


@dataclass(frozen=True)
class D3pm:
    """`steps`: T. `highest`: the share of masks at step T, 1 for a bound on the whole likelihood."""

    steps: int = 1000
    noise: str = "d3pm"
    highest: float = 1.0

    def __post_init__(self) -> None:
        noise_by_name(self.noise).alphas(self.steps, self.highest)

    def corrupt(
        self, tokens: np.ndarray, starts: np.ndarray, vocabulary: Vocabulary, random: np.random.Generator
    ) -> Corrupted:
        """See `Objective`."""
        alphas = noise_by_name(self.noise).alphas(self.steps, self.highest)
        k = np.minimum(np.ceil(spread_times(len(tokens), random) * self.steps).astype(int), self.steps)
        eligible = vocabulary.eligible(tokens)
        chosen = hide(eligible, 1.0 - alphas[k], random)
        weights = np.broadcast_to((self.steps * unmasking(alphas[k - 1], alphas[k]))[:, None], tokens.shape)
        seen = np.where(chosen, vocabulary.mask, tokens)
        return Corrupted(seen, chosen, float(max(1, eligible.sum())), weights, vocabulary.mask)
