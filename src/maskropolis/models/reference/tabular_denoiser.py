"""The exact denoiser of a distribution small enough to enumerate: the ground truth of scores and Langevin dynamics."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from maskropolis.models.protocol import Budget
from maskropolis.sequences import Sequences


class TabularDenoiser:
    """p(w_t | x̃) of a joint distribution over sequences of one length, by Bayes' rule over all of them.

    `joint` has one axis a position; the mask token, with an embedding of its own but without mass, is the last.
    `embeddings` [V, d] are those of all tokens.
    """

    padding_safe = True

    def __init__(self, joint: Tensor, embeddings: Tensor, low: float, high: float) -> None:
        self.embeddings, self.low, self.high = embeddings.double(), low, high
        self.vocabulary_size = len(embeddings)
        self.mask_token = self.vocabulary_size - 1
        if set(joint.shape) != {self.mask_token}:
            raise ValueError(f"expected {self.mask_token} tokens on every axis; got {tuple(joint.shape)}")
        self.allowed = torch.arange(self.vocabulary_size) != self.mask_token
        self.budget = Budget()
        every = [torch.arange(self.mask_token)] * joint.dim()
        self._rows = torch.cartesian_prod(*every).view(-1, joint.dim())  # [R, T], all sequences
        self._log_prior = joint.double().reshape(-1).log()

    def log_posterior(self, sequences: Sequences, noisy: Tensor, sigmas: Tensor, where: Tensor) -> Tensor:
        """See `Denoiser`; float64."""
        distance = (noisy.double()[:, :, None] - self.embeddings).square().sum(-1)  # [C, T, V]
        fit = -distance / (2 * sigmas.double().square()[:, None, None])
        sure = torch.nn.functional.one_hot(sequences.tokens, self.vocabulary_size).double().log()
        fit = torch.where(where[..., None], fit, sure)
        position = torch.arange(self._rows.shape[1])
        joint = (self._log_prior + fit[:, position, self._rows].sum(-1)).log_softmax(-1)  # [C, R]
        out = torch.full(fit.shape, -torch.inf, dtype=torch.float64)
        for token in range(self.mask_token):
            holds = torch.where((self._rows == token)[None], joint[..., None], -torch.inf)  # [C, R, T]
            out[..., token] = holds.logsumexp(1)
        return out[where]

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self._log_prior.numpy().tobytes())
        digest.update(self.embeddings.numpy().tobytes())
        return digest.hexdigest()
