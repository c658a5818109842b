"""A bound on −log p(x) for the Gaussian diffusion of embeddings, and the cross-entropy of one noise level; in nats.

    −log p(x) ≤ Σ_t ‖e(x_t)‖²/(2 σ_1²)  +  ∫ E‖e(x) − ê(x̃)‖² σ^−2 d log σ  +  E[Σ_t −log p(x_t | x̃)] at σ_L
                 prior N(0, σ_1²)             from σ_L to σ_1                     writing the tokens

    denoising(σ) = E[Σ_t −log p(x_t | x̃)]

x̃ = e(x) + σε at every scored token. The generator that is bounded starts from N(0, σ_1²), follows the score of the
denoiser down to σ_L and draws each token from p(w | x̃). Kingma et al. (2021), *Variational Diffusion Models*, equation
18 with SNR = 1/σ², continuous time. With the exact posterior of a distribution of independent tokens the integral is
the information that x̃ gives (Guo, Shamai & Verdú 2005), and the bound is the entropy plus the mismatch of the prior.

log σ is drawn in strata, two copies in each: half the squared difference within a stratum is an unbiased estimate of
its variance, so the standard error is honest. An eighth as many copies, at least two, measure the writing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.errors import InputError, unknown_name
from maskropolis.models.denoising.denoiser import Denoiser
from maskropolis.randomness import AUXILIARY, Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.diffusion.bounds import Bound
from maskropolis.targets.diffusion.denoising import log_posteriors

GAUSSIAN = ("gaussian", "denoising")


@dataclass(frozen=True)
class GaussianSettings:
    """`kind`: the bound `gaussian`, or `denoising` at the noise level `sigma`. `samples`: noisy copies of each
    sequence, an even number. Raises `InputError` for values out of range."""

    kind: str = "gaussian"
    samples: int = 64
    sigma: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in GAUSSIAN:
            raise unknown_name("bound", self.kind, GAUSSIAN)
        if self.samples < 2 or self.samples % 2:
            raise InputError(f"{self.samples} noisy copies are out of range; expected an even number, at least 2")
        if not 0 < self.sigma < math.inf:
            raise InputError(f"the noise level σ is {self.sigma:g}; expected a finite number above 0")

    def signature(self) -> str:
        level = f"sigma={self.sigma:g}," if self.kind == "denoising" else ""
        return f"{self.kind}({level}copies={self.samples},seed={self.seed})"


def gaussian_bounds(
    denoiser: Denoiser, sequences: Sequences, settings: GaussianSettings, streams: list[int] | None = None
) -> list[Bound]:
    """The number of `settings` for each row. `streams` [C] key the random numbers (default 0 … C−1), so that an
    estimate does not depend on what else is scored. Raises `InputError` for a σ that the denoiser does not know."""
    keys = list(range(len(sequences))) if streams is None else streams
    copies = _Copies(denoiser, sequences, Streams(settings.seed, keys, AUXILIARY))
    if settings.kind == "denoising":
        require_level(denoiser, settings.sigma)
        (values, error), rows = copies.writing(settings.sigma, 0, settings.samples), settings.samples
    else:
        few = max(2, settings.samples // 16 * 2)
        integral, first = copies.integral(settings.samples)
        writing, second = copies.writing(denoiser.low, settings.samples, few)
        values, error = copies.prior() + integral + writing, (first.square() + second.square()).sqrt()
        rows = settings.samples + few
    spent = [rows if n else 0 for n in sequences.free_counts.tolist()]
    return [Bound(*row) for row in zip(values.tolist(), error.tolist(), spent, strict=True)]


def recovered(denoiser: Denoiser, sequences: Sequences, sigma: float, seed: int = 0) -> float:
    """The share of free tokens that are the likeliest given one noisy copy of their sequence: the reconstruction."""
    require_level(denoiser, sigma)
    copies = _Copies(denoiser, sequences, Streams(seed, range(len(sequences)), AUXILIARY))
    _, noise = copies.uniforms(0)
    right = [
        (found.argmax(-1) == sequences.tokens[rows, positions]).double()
        for rows, positions, found in copies.posteriors(noise, torch.full((len(sequences),), sigma))
    ]
    return float(torch.cat(right).mean())


def require_level(denoiser: Denoiser, sigma: float) -> None:
    """Raises `InputError` for a noise level that the denoiser does not know."""
    if not denoiser.low * (1 - 1e-6) <= sigma <= denoiser.high * (1 + 1e-6):
        raise InputError(
            f"σ = {sigma:g} is outside of what this model was trained on; "
            f"expected a level from {denoiser.low:g} to {denoiser.high:g}"
        )


@dataclass(frozen=True, eq=False)
class _Copies:
    """Noisy copies of sequences; copy k of a row depends on its stream and k alone. All results are [C] float64."""

    denoiser: Denoiser
    sequences: Sequences
    streams: Streams

    def uniforms(self, copy: int) -> tuple[Tensor, Tensor]:
        """([C] a uniform, [C, T, d] standard normal numbers)."""
        shape = (len(self.sequences), self.sequences.width, self.denoiser.embeddings.shape[1])
        drawn = self.streams.wide(copy, 1 + shape[1] * shape[2], self.sequences.device)
        return drawn[:, 0], torch.special.ndtri(drawn[:, 1:]).view(shape).to(self.denoiser.embeddings)

    def posteriors(self, noise: Tensor, sigmas: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """`log_posteriors` of every free position under `noise` of level `sigmas` [C]."""
        sigmas = sigmas.to(noise)
        noisy = self.denoiser.embeddings[self.sequences.tokens] + sigmas[:, None, None] * noise
        return log_posteriors(self.denoiser, self.sequences, noisy, sigmas, self.sequences.free)

    def prior(self) -> Tensor:
        """KL(N(e(x), σ_1²) ‖ N(0, σ_1²)), summed over the free positions."""
        lengths = self.denoiser.embeddings[self.sequences.tokens].double().square().sum(-1)
        return torch.where(self.sequences.free, lengths, 0.0).sum(1) / (2 * self.denoiser.high**2)

    def integral(self, copies: int) -> tuple[Tensor, Tensor]:
        """(mean, standard error) of the middle term."""
        span = math.log(self.denoiser.high / self.denoiser.low)

        def one(copy: int) -> Tensor:
            level, noise = self.uniforms(copy)
            sigmas = self.denoiser.high * (-span * (copy // 2 + level) / (copies // 2)).exp()
            out = torch.zeros(len(self.sequences), dtype=torch.float64, device=self.sequences.device)
            table = self.denoiser.embeddings
            for rows, positions, found in self.posteriors(noise, sigmas):
                error = table[self.sequences.tokens[rows, positions]] - found.exp() @ table.to(found)
                out.index_add_(0, rows, error.double().square().sum(-1))
            return span * out / sigmas.double().square()

        return _over_strata(copies, one)

    def writing(self, sigma: float, first: int, copies: int) -> tuple[Tensor, Tensor]:
        """(mean, standard error) of −log p(x | x̃) at one level, by copies `first` and later."""

        def one(copy: int) -> Tensor:
            _, noise = self.uniforms(first + copy)
            out = torch.zeros(len(self.sequences), dtype=torch.float64, device=self.sequences.device)
            for rows, positions, found in self.posteriors(noise, torch.full((len(out),), sigma)):
                truth = self.sequences.tokens[rows, positions]
                out.index_add_(0, rows, -found.gather(1, truth[:, None])[:, 0].double())
            return out

        return _over_strata(copies, one)


def _over_strata(copies: int, value: Callable[[int], Tensor]) -> tuple[Tensor, Tensor]:
    """([C] means, [C] standard errors) of `value(copy)`, copies 2i and 2i + 1 being of the same stratum."""
    pairs = torch.stack([value(copy) for copy in range(copies)]).unflatten(0, (-1, 2))
    error = ((pairs[:, 0] - pairs[:, 1]) / 2).square().sum(0).sqrt() / len(pairs)
    return pairs.mean((0, 1)), error
