"""Small models whose diffusion can be enumerated."""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.decoders.diffusion.reverse import UNIFORMS, Reverse, diffuse, matrix_source
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.proof.decisions import distribution
from maskropolis.sequences import Sequences

LENGTH, TOKENS = 3, 2


def joint(seed: int = 0, length: int = LENGTH, tokens: int = TOKENS) -> Tensor:
    """A distribution with strong dependence between positions, [tokens] · length."""
    generator = torch.Generator().manual_seed(seed)
    weights = (2.0 * torch.randn([tokens] * length, generator=generator, dtype=torch.float64)).exp()
    return weights / weights.sum()


def blank(model: TabularMaskedLM, length: int = LENGTH) -> Sequences:
    """One row of masks, all free."""
    row = torch.full((1, length), model.mask_token)
    return Sequences(row, torch.ones_like(row, dtype=torch.bool), torch.ones_like(row, dtype=torch.bool))


def enumerated(
    model: TabularMaskedLM, start: Sequences, reverse: Reverse, block: int | None = None, steps: int | None = None
) -> dict[tuple[int, ...], float]:
    """The exact distribution of what a sampler writes: tokens -> probability. `steps`: in all, over all blocks."""
    masks = int((start.free & (start.tokens == model.mask_token)).sum())
    columns = UNIFORMS * start.width * (steps or reverse.steps(masks))

    def program(origin: Tensor, uniforms: Tensor) -> Tensor:
        source = matrix_source(uniforms, start.width)
        return diffuse(model, start.rows(origin), reverse, source, block).sequences.tokens

    results, weights = distribution(program, columns)
    return {tuple(row): weight for row, weight in zip(results.tolist(), weights.tolist(), strict=True)}


def total_variation(found: dict[tuple[int, ...], float], truth: Tensor) -> float:
    """Between the enumerated outcomes and a table over all tokens."""
    table = torch.zeros_like(truth)
    for tokens, weight in found.items():
        table[tokens] += weight
    return 0.5 * float((table - truth).abs().sum())
