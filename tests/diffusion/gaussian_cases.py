"""Distributions whose score under Gaussian noise is known in closed form, and the law of Langevin dynamics on them."""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.decoders.langevin import Langevin
from maskropolis.models.reference.tabular_denoiser import TabularDenoiser
from maskropolis.sequences import Sequences

PRIORS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
ON_A_LINE = torch.tensor([[-1.0], [0.25], [1.0], [0.0]], dtype=torch.float64)  # the last is the mask


def tabular(joint: Tensor, embeddings: Tensor = ON_A_LINE) -> TabularDenoiser:
    return TabularDenoiser(joint, embeddings, low=0.1, high=4.0)


def rows(tokens: Tensor) -> Sequences:
    """`tokens` [C, T], all free."""
    every = torch.ones_like(tokens, dtype=torch.bool)
    return Sequences(tokens, every, every)


def log_density(joint: Tensor, embeddings: Tensor, noisy: Tensor, sigma: float) -> Tensor:
    """[C] log p_σ(x̃) of the mixture of Gaussians, up to a constant, written out; `noisy` [C, T, d]."""
    tokens = torch.cartesian_prod(*[torch.arange(joint.shape[0])] * joint.dim()).view(-1, joint.dim())
    distance = (noisy[:, None] - embeddings[tokens][None]).square().sum((-1, -2))
    return (joint.reshape(-1).log() - distance / (2 * sigma**2)).logsumexp(-1)


def law(priors: Tensor, embeddings: Tensor, settings: Langevin, points: int = 250) -> Tensor:
    """[V] the distribution of the token that the dynamics of one position on a line writes, by quadrature."""
    ladder = settings.ladder(tabular(priors, embeddings))
    places = embeddings[: len(priors), 0]

    def grid(sigma: float) -> Tensor:
        reach = float(places.abs().max()) + 6 * sigma
        return torch.linspace(-reach, reach, points, dtype=torch.float64)

    def posterior(x: Tensor, sigma: float) -> Tensor:
        return (priors.log() - (x[:, None] - places).square() / (2 * sigma**2)).softmax(-1)

    x = grid(ladder[0])
    mass = (-x.square() / (2 * ladder[0] ** 2)).softmax(-1)
    for step in range(settings.steps):
        sigma = ladder[step * settings.levels // settings.steps]
        centre = x + settings.step_size / 2 * (posterior(x, sigma) @ places - x)
        x = grid(sigma)
        spread = 2 * settings.step_size * sigma**2
        mass = mass @ (-(x[None] - centre[:, None]).square() / spread).softmax(-1)
    return torch.zeros_like(priors).index_add(0, posterior(x, ladder[-1]).argmax(-1), mass)
