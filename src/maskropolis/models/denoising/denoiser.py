"""A denoiser of token embeddings: log p(w_t | x̃) given noisy vectors. Mean, score, bound and Langevin rest on it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from maskropolis.errors import ModelError
from maskropolis.models.denoising.noise_conditioning import noisy_logits
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.protocol import Budget
from maskropolis.sequences import Sequences


class Denoiser(Protocol):
    """What a model must do to be read as a denoising autoencoder.

    Attributes:
        embeddings: [V, d] the vectors e(w) that noise is added to.
        low, high: the noise levels σ that it knows.
        allowed: [V] bool, tokens that a sampler may write. mask_token: id of the mask.
        budget: limits of one forward pass. padding_safe: whether rows of different lengths may share it.
    """

    low: float
    high: float
    mask_token: int
    padding_safe: bool
    budget: Budget

    @property
    def embeddings(self) -> Tensor: ...

    @property
    def allowed(self) -> Tensor: ...

    def log_posterior(self, sequences: Sequences, noisy: Tensor, sigmas: Tensor, where: Tensor) -> Tensor:
        """[K, V] log p(w_t | x̃), normalised, at the K places of `where` [C, T], in row order. There, and only there,
        `noisy` [C, T, d] with noise `sigmas` [C] is seen instead of the token."""
        ...

    def fingerprint(self) -> str: ...


class HuggingFaceDenoiser:
    """A `HuggingFaceMaskedLM` that was trained with noise on its embeddings; the mask token is never a prediction.

    Raises `ModelError` if it was not.
    """

    def __init__(self, model: HuggingFaceMaskedLM) -> None:
        found = model.noise_conditioning
        if found is None:
            raise ModelError(
                f"'{model.name}' has no noise conditioning, which denoising, its score and Langevin dynamics need; "
                "make such a model with `maskropolis train mlm --objective gaussian-dae`"
            )
        self._model, self._conditioning = model, found
        self.low, self.high = found.low, found.high
        self.mask_token, self.padding_safe, self.budget = model.mask_token, model.padding_safe, model.budget

    @property
    def embeddings(self) -> Tensor:
        return self._conditioning.embeddings

    @property
    def allowed(self) -> Tensor:
        return self._model.allowed

    @torch.inference_mode()
    def log_posterior(self, sequences: Sequences, noisy: Tensor, sigmas: Tensor, where: Tensor) -> Tensor:
        """See `Denoiser`; float32."""
        attention = None if bool(sequences.attention.all()) else sequences.attention.long()
        levels = torch.where(where, sigmas.to(noisy)[:, None], 0.0)
        logits = noisy_logits(
            self._model.model, self._model.parts, self._conditioning, sequences.tokens, noisy, levels, where, attention
        )
        logits[:, self.mask_token] = -torch.inf
        return logits.log_softmax(-1)

    def fingerprint(self) -> str:
        return self._model.fingerprint()
