"""Ancestral sampling: T steps of the reverse process of an absorbing-state diffusion.

    p(z_s | z_t) = ∏_i q(z_s,i | z_t,i, x_i ~ p(· | z_t)):   a masked position is written with probability
    (α_s − α_t)/(1 − α_t), by a draw from its conditional given everything visible at t; all positions at once

Positions written in the same step do not see each other: with few steps the joint distribution is lost, even if every
conditional is exact. As T → ∞ one position is written at a time, and the samples are those of `first-hitting`.

Whether a position is written does not depend on the model, so it is decided first; a chain in which nothing is written
in a step needs no forward pass. Austin et al. (2021), section 3; Sahoo et al. (2024), section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.decoders.diffusion.remasking import Remasking, reveal_probability
from maskropolis.decoders.writing import Writing, with_all, write
from maskropolis.errors import InputError
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import accept
from maskropolis.sequences import Sequences
from maskropolis.targets.diffusion.noise import noise_by_name


@dataclass(frozen=True)
class Ancestral:
    """`count` steps along the noise schedule `noise`, with ReMDM's remasking if asked for."""

    count: int = 128
    noise: str = "log-linear"
    writing: Writing = Writing()
    remasking: Remasking = Remasking()
    name: str = "ancestral"

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"{self.count} steps of diffusion are too few; expected at least 1")
        noise_by_name(self.noise)

    def steps(self, masks: int) -> int:
        return self.count

    def step(
        self, model: MaskedLM, sequences: Sequences, block: Tensor, step: int, steps: int, uniforms: Tensor
    ) -> tuple[Sequences, int]:
        """See `Reverse`. Uniforms of a position: 0 whether it changes, 1 its token."""
        alphas = noise_by_name(self.noise).alphas(steps)
        alpha_s, alpha_t = float(alphas[steps - step - 1]), float(alphas[steps - step])
        sigma = self.remasking.sigma(alpha_s, alpha_t)
        hidden = block & (sequences.tokens == model.mask_token)
        reveal = happens(hidden, reveal_probability(alpha_s, alpha_t, sigma), uniforms[..., 0])
        again = happens(block & ~hidden, sigma, uniforms[..., 0])
        sequences, rows = write(model, sequences, reveal, self.writing, uniforms[..., 1])
        return with_all(sequences, sequences.tokens.masked_fill(again, model.mask_token)), rows

    def signature(self) -> str:
        again = "" if self.remasking.strategy == "none" else f",{self.remasking.strategy}={self.remasking.eta:g}"
        return f"ancestral({self.noise},steps={self.count}{again})"


def happens(where: Tensor, probability: float, uniforms: Tensor) -> Tensor:
    """[C, T] bool: True at each position of `where` [C, T] with `probability`; `uniforms` [C, T]."""
    if probability <= 0:
        return torch.zeros_like(where)
    out = where.clone()
    chain, position = where.nonzero(as_tuple=True)
    log_probability = torch.full((len(chain),), math.log(probability), dtype=torch.float64, device=where.device)
    out[chain, position] = accept(log_probability, uniforms[chain, position])
    return out
