"""Annealed Langevin dynamics: noise follows the score of a denoiser to a text, down a ladder of noise levels.

    x̃ ← x̃ + α_i/2 · s(x̃, σ_i) + √α_i z,    z ~ N(0, I),    α_i = ε σ_i²/σ_L²;    T steps at each of L levels

    σ_1 > … > σ_L geometric;  with η = ε/σ_L², the step in units of σ_i²:  x̃ ← x̃ + η/2 (ê(x̃) − x̃) + σ_i √η z

Song & Ermon (2019), algorithm 1. It starts from N(0, σ_1²), which is close to p_σ1 when σ_1 is several lengths of an
embedding. With a single small σ, chains would not leave the token they are at: the ladder is what mixes. Then the token
that is likeliest given x̃ at σ_L is written (`decode="likeliest"`, one model row more), or the nearest one.

There is no Metropolis correction: steps of finite η have a variance too large by 1/(1 − η/4), and too few levels lag
behind the ladder. So it follows the model only as η → 0 and L, T → ∞. The mean of the denoiser is taken over the tokens
that may be written. One step costs one model row, with the output layer at every position that moves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.decoders.diffusion.reverse import Observe, unobserved
from maskropolis.errors import InputError, unknown_name
from maskropolis.models.denoising.denoiser import Denoiser
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.diffusion.denoising import likeliest, mean, nearest

DECODES = ("likeliest", "nearest")


@dataclass(frozen=True)
class Langevin:
    """`levels` L, `steps` in all (L · T), `step_size` η = ε/σ_L². `high`, `low`: σ_1 and σ_L, by default the ends of
    the range that the denoiser was trained on. Raises `InputError` for values out of range."""

    levels: int = 32
    steps: int = 128
    step_size: float = 0.5
    high: float | None = None
    low: float | None = None
    decode: str = "likeliest"

    def __post_init__(self) -> None:
        if self.levels < 1 or self.steps < 1 or self.steps % self.levels:
            raise InputError(
                f"{self.steps} steps of Langevin dynamics cannot be shared equally among {self.levels} noise levels; "
                "expected a multiple of the levels"
            )
        if not 0 < self.step_size < 2:
            raise InputError(f"step size {self.step_size:g} is out of range; expected a number above 0 and below 2")
        for sigma in (self.high, self.low):
            if sigma is not None and not 0 < sigma < math.inf:
                raise InputError(f"noise level {sigma:g} is out of range; expected a finite number above 0")
        if self.decode not in DECODES:
            raise unknown_name("way of decoding", self.decode, DECODES)

    def ladder(self, denoiser: Denoiser) -> list[float]:
        """σ_1 … σ_L. Raises `InputError` for levels that the denoiser does not know."""
        high = denoiser.high if self.high is None else self.high
        low = denoiser.low if self.low is None else self.low
        slack = 1 + 1e-6
        if not (denoiser.low <= low * slack and low <= high <= denoiser.high * slack):
            raise InputError(
                f"noise from {high:g} down to {low:g} is outside of what this model was trained on; "
                f"expected levels between {denoiser.high:g} and {denoiser.low:g}"
            )
        if self.levels == 1:
            return [low]
        return [high * (low / high) ** (i / (self.levels - 1)) for i in range(self.levels)]

    def signature(self) -> str:
        ends = "" if self.high is None and self.low is None else f",sigma={self.high}:{self.low}"
        return f"langevin(levels={self.levels},steps={self.steps},eta={self.step_size:g}{ends},decode={self.decode})"


@dataclass(frozen=True, eq=False)
class Annealed:
    """`sequences`: texts without masks. `noisy` [C, T, d]: the last x̃. `rows`: model rows."""

    sequences: Sequences
    noisy: Tensor
    rows: int


def langevin(
    denoiser: Denoiser,
    sequences: Sequences,
    settings: Langevin,
    streams: Streams,
    observe: Observe = unobserved,
) -> Annealed:
    """Write the masked free positions of `sequences`; all else is context, visible without noise.

    A chain depends on its own stream alone. `observe` is told of the steps.
    """
    ladder = settings.ladder(denoiser)
    where = sequences.free & (sequences.tokens == denoiser.mask_token)
    size = denoiser.embeddings.shape[1]

    def normal(step: int) -> Tensor:
        uniforms = streams.wide(step, sequences.width * size)
        return torch.special.ndtri(uniforms).to(denoiser.embeddings).view(len(sequences), sequences.width, size)

    noisy, at = normal(0) * ladder[0], where[..., None]
    running = int(where.any(1).sum())
    for step in range(settings.steps):
        sigma = ladder[step * settings.levels // settings.steps]
        sigmas = torch.full((len(sequences),), sigma, dtype=noisy.dtype, device=noisy.device)
        towards = mean(denoiser, sequences, noisy, sigmas, where, denoiser.allowed) - noisy
        moved = noisy + settings.step_size / 2 * towards + sigma * math.sqrt(settings.step_size) * normal(step + 1)
        noisy = torch.where(at, moved, noisy)
        observe(step + 1, settings.steps)
    rows = running * settings.steps
    if settings.decode == "nearest":
        return Annealed(nearest(denoiser, sequences, noisy, where, denoiser.allowed), noisy, rows)
    sigmas = torch.full((len(sequences),), ladder[-1], dtype=noisy.dtype, device=noisy.device)
    return Annealed(likeliest(denoiser, sequences, noisy, sigmas, where, denoiser.allowed), noisy, rows + running)
