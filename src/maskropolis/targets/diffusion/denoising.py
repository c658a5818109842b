"""The model as a denoising autoencoder and as a score.

    ê(x̃) = E[e | x̃] = Σ_w p(w | x̃) e(w)                              the mean of the denoiser
    s(x̃, σ) = ∇ log p_σ(x̃) = (ê(x̃) − x̃) / σ²                         Tweedie's formula
    p_σ(x̃) = Σ_x p(x) Π_t N(x̃_t; e(x_t), σ²)                          a mixture of Gaussians with a mode a text

Vincent (2011), *A connection between score matching and denoising autoencoders*; Efron (2011) for Tweedie's formula.
Rows are evaluated in batches under the budget of the denoiser.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from maskropolis.models.denoising.denoiser import Denoiser
from maskropolis.sequences import Sequences


def log_posteriors(
    denoiser: Denoiser, sequences: Sequences, noisy: Tensor, sigmas: Tensor, where: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Batches of (rows [K], positions [K], log p(w | x̃) [K, V]) that cover every place of `where` [C, T] once.

    `noisy` [C, T, d] is seen at these places, `sigmas` [C] is the noise in a row.
    """
    lengths = sequences.lengths
    order = torch.argsort(lengths, descending=True, stable=True)
    order = order[where[order].any(1)]
    start = 0
    while start < len(order):
        width = int(lengths[order[start]])
        stop = start + max(1, min(denoiser.budget.tokens, _positions(denoiser)) // width)
        if not denoiser.padding_safe:
            stop = min(stop, start + int((lengths[order[start:]] == width).sum()))
        index = order[start:stop]
        rows = sequences.rows(index)
        part = Sequences(rows.tokens[:, :width], rows.free[:, :width], rows.attention[:, :width])
        at = where[index, :width]
        found = denoiser.log_posterior(part, noisy[index, :width], sigmas[index], at)
        row, position = at.nonzero(as_tuple=True)
        yield index[row], position, found
        start = stop


def _positions(denoiser: Denoiser) -> int:
    """How many positions may have their logits at once."""
    return max(1, denoiser.budget.logits // len(denoiser.embeddings))


def mean(
    denoiser: Denoiser,
    sequences: Sequences,
    noisy: Tensor,
    sigmas: Tensor,
    where: Tensor,
    allowed: Tensor | None = None,
) -> Tensor:
    """ê [C, T, d] at `where` [C, T], 0 elsewhere; the posterior is renormalised on `allowed` [V] bool, if given."""
    out = torch.zeros_like(noisy)
    for rows, positions, found in log_posteriors(denoiser, sequences, noisy, sigmas, where):
        found = found if allowed is None else found.masked_fill(~allowed, -torch.inf)
        out[rows, positions] = (found.softmax(-1) @ denoiser.embeddings.to(found)).to(out)
    return out


def score(
    denoiser: Denoiser,
    sequences: Sequences,
    noisy: Tensor,
    sigmas: Tensor,
    where: Tensor,
    allowed: Tensor | None = None,
) -> Tensor:
    """s(x̃, σ) [C, T, d] at `where`, 0 elsewhere."""
    towards = mean(denoiser, sequences, noisy, sigmas, where, allowed) - noisy
    return torch.where(where[..., None], towards / sigmas.to(noisy).square()[:, None, None], 0.0)


def likeliest(
    denoiser: Denoiser, sequences: Sequences, noisy: Tensor, sigmas: Tensor, where: Tensor, allowed: Tensor
) -> Sequences:
    """The sequences with the likeliest allowed token given x̃ at each place of `where`."""
    tokens = sequences.tokens.clone()
    for rows, positions, found in log_posteriors(denoiser, sequences, noisy, sigmas, where):
        tokens[rows, positions] = found.masked_fill(~allowed, -torch.inf).argmax(-1)
    return Sequences(tokens, sequences.free, sequences.attention, sequences.source)


def nearest(denoiser: Denoiser, sequences: Sequences, noisy: Tensor, where: Tensor, allowed: Tensor) -> Sequences:
    """The sequences with the allowed token whose vector is nearest to x̃ at each place of `where`: no model needed."""
    table = denoiser.embeddings
    fit = noisy[where].to(table) @ table.T - table.square().sum(-1) / 2
    tokens = sequences.tokens.clone()
    tokens[where] = fit.masked_fill(~allowed, -torch.inf).argmax(-1)
    return Sequences(tokens, sequences.free, sequences.attention, sequences.source)
