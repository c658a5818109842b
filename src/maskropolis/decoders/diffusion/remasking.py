"""Remasking: written tokens may be masked again, so that a diffusion can mend what it wrote too early (ReMDM).

    q_σ(z_s | z_t, x):  z_t ≠ m:  m with σ, else x
                        z_t = m:  x with (α_s − (1 − σ) α_t)/(1 − α_t), else m
    0 ≤ σ ≤ σ_max = min(1, (1 − α_s)/α_t)

For every such σ the marginals q(z_s | x) are those of the plain diffusion; σ = 0 is the plain posterior.
    cap      σ = min(η, σ_max)
    rescale  σ = η · σ_max
Wang, Schiff, Sahoo & Kuleshov (2025), equations 6 to 8 and section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskropolis.errors import InputError, unknown_name

STRATEGIES = ("none", "cap", "rescale")


@dataclass(frozen=True)
class Remasking:
    """`eta` in [0, 1]. Raises `InputError`."""

    strategy: str = "none"
    eta: float = 0.0

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise unknown_name("remasking strategy", self.strategy, STRATEGIES)
        if not 0 <= self.eta <= 1:
            raise InputError(f"eta {self.eta!r} of remasking is out of range; expected a number from 0 to 1")

    def sigma(self, alpha_s: float, alpha_t: float) -> float:
        """The probability that a visible token is masked on the way from t to s."""
        if self.strategy == "none" or alpha_t == 0:
            return 0.0
        largest = min(1.0, (1.0 - alpha_s) / alpha_t)
        return min(self.eta, largest) if self.strategy == "cap" else self.eta * largest


def reveal_probability(alpha_s: float, alpha_t: float, sigma: float) -> float:
    """(α_s − (1 − σ) α_t)/(1 − α_t): the probability that a masked position is written."""
    return min(1.0, (alpha_s - (1.0 - sigma) * alpha_t) / (1.0 - alpha_t))
