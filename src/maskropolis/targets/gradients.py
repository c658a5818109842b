"""The gradient of the energies with respect to one-hot tokens, and the first-order differences that it predicts.

The energy of one-hot tokens, E(x) = Σ_{t∈F} e_t(x_t, x_∖t), is extended to real-valued rows x_s ∈ R^V:

    e_t is linear in x_t          e_t = -Σ_w x_t[w] log p_t(w | x_∖t)   (norm),   -Σ_w x_t[w] f_t(x_∖t)[w]   (raw)
    x_∖t enters as the network reads it, each row times the input embeddings

so that ∂E/∂x_s[w] has a direct part, from the term of s itself, and one through the inputs of all other masked rows:

    d(s, w) = ∂E/∂x_s · (onehot(w) - x_s) = -(f_s[w] - f_s[x_s]) + g_s · (W[w] - W[x_s]),    g_s = Σ_{t≠s} ∂e_t/∂e_s

d is what E changes by if token w is put at s, to first order; its direct part is exact. The row masked at s reads the
mask there, so it has no part in g_s. For a table the terms are extended multilinearly, and d is the exact difference.
Any rule that gives d from x alone keeps a Metropolis-corrected kernel exact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.forward.differentiable import ROWS, DifferentiableMaskedLM, is_differentiable
from maskropolis.models.forward.rows import gradient_batches, single_mask_rows
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import Conditionals
from maskropolis.targets.energy import Energy, Evaluation, MaskedEnergy, Tally
from maskropolis.targets.steered import SteeredEnergy


def evaluate_with_slopes(model: MaskedLM, energy: Energy, sequences: Sequences) -> tuple[Evaluation, Tensor]:
    """E with its conditionals kept, and g [C, T, H], 0 where a position is not free. 3n model rows a sequence.

    Experts and constraints count in E and have no part in g; where they make E infinite, the model is not asked.
    Raises `InputError` for a model without gradients or an energy that is not made of masked conditionals.
    """
    network, masked = _differentiable(model), _masked(energy)
    offset = torch.zeros(len(sequences), dtype=torch.float64, device=sequences.device)
    if isinstance(energy, SteeredEnergy):
        offset = energy.offset(sequences)
    tally, rows = Tally(masked, sequences, keep=True), single_mask_rows(sequences)
    rows = rows.at((offset < torch.inf)[rows.chain])
    slopes = torch.zeros(
        *sequences.tokens.shape, network.input_vectors.shape[1], dtype=torch.float64, device=sequences.device
    )
    for index, (logits, of_rows) in gradient_batches(network, sequences, rows, masked.term):
        chain, position = rows.chain[index], rows.asked[index, 0]
        tally.add(chain, position, logits)
        others = torch.arange(of_rows.shape[1], device=chain.device) != position[:, None]
        slopes[:, : of_rows.shape[1]].index_add_(0, chain, of_rows.double() * others[..., None])
    found = tally.evaluation()
    kept = found.conditionals
    if kept is None:  # every energy is infinite
        kept = Conditionals.empty(sequences, model.vocabulary_size, torch.float32)
    slopes = (slopes * sequences.free[..., None]).to(network.input_vectors.dtype)
    return Evaluation(found.energy + offset, found.terms, kept, ROWS * found.rows), slopes


def differences(
    model: MaskedLM, sequences: Sequences, conditionals: Conditionals, slopes: Tensor, positions: Tensor
) -> Tensor:
    """d(s, ·) [C, V] float64 at s = `positions` [C]; 0 at the token that stands there."""
    vectors = _differentiable(model).input_vectors
    chains = torch.arange(len(sequences), device=sequences.device)
    through = (slopes[chains, positions] @ vectors.T).double()
    wanted = through - conditionals.at(positions).double()
    return wanted - wanted.gather(1, sequences.tokens_at(positions)[:, None])


def _differentiable(model: MaskedLM) -> DifferentiableMaskedLM:
    if not is_differentiable(model):
        raise InputError(f"model '{model.name}' gives no gradients; choose a kernel without, e.g. informed")
    return model


def _masked(energy: Energy) -> MaskedEnergy:
    masked = energy.masked if isinstance(energy, SteeredEnergy) else energy
    if not isinstance(masked, MaskedEnergy):
        raise InputError(f"energy '{energy.name}' has no gradient; expected raw or norm")
    return masked
