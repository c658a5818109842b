"""The forward pass of the Gaussian objective: noise from each row's own key, the network told of its level."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from maskropolis.models.denoising.noise_conditioning import MODULE, NoiseConditioning, noisy_logits
from maskropolis.models.huggingface.split import BodyAndHead
from maskropolis.training.objectives import Corrupted


def conditioning_of(network: Any) -> NoiseConditioning:
    """The conditioning that the network carries while it is trained."""
    found = getattr(network, MODULE, None)
    if not isinstance(found, NoiseConditioning):
        raise TypeError(f"{type(network).__name__} carries no noise conditioning")
    return found


def denoising_logits(network: Any, parts: BodyAndHead | None, truth: Tensor, corrupted: Corrupted) -> Tensor:
    """[K, V] at the chosen places; `truth` [N, T] the tokens that noise is added to."""
    assert corrupted.sigmas is not None and corrupted.keys is not None
    conditioning, device = conditioning_of(network), truth.device
    sigmas = torch.from_numpy(corrupted.sigmas).to(device)
    noisy = conditioning.embeddings[truth]
    shape = noisy.shape[1], noisy.shape[2]
    noise = np.stack([gaussian_noise(key, shape) for key in corrupted.keys.tolist()])
    level = sigmas.nan_to_num(posinf=0.0)[..., None]
    noisy = noisy + level * torch.from_numpy(noise).to(device)
    seen, chosen = (torch.from_numpy(array).to(device) for array in (corrupted.tokens, corrupted.chosen))
    return noisy_logits(network, parts, conditioning, seen, noisy, sigmas, chosen)


def gaussian_noise(key: int, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal float32 numbers, a function of `key` alone."""
    return np.random.Generator(np.random.Philox(key=key)).standard_normal(shape, dtype=np.float32)


def log_prior(counts: np.ndarray, ordinary: np.ndarray, mask: int) -> Tensor:
    """[V] log frequency of each token with one added; special tokens count as unseen, the mask is impossible.

    `counts` [V]; `ordinary` [W] the ids of tokens that are not special."""
    seen = np.ones(len(counts))
    seen[ordinary] += counts[ordinary]
    seen[mask] = 0.0
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(seen / seen.sum())).float()
