"""Fills masks one at a time, each drawn given everything that is filled so far: how a chain leaves a row of masks.

No proposal can bring a mask back, so Metropolis–Hastings, which weighs every move against its reverse, could never
leave a row of masks. The first visit to each position therefore counts as accepted, in random order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.models.forward.rows import Rows, batches
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import free_in_order


def fill_one_by_one(model: MaskedLM, sequences: Sequences, uniforms: Tensor) -> Sequences:
    """A copy with every free mask replaced by a draw from its conditional, n rows a chain; `uniforms` [C, ≥ 2T]."""
    blank = sequences.free & (sequences.tokens == model.mask_token)
    width = sequences.width
    keys = torch.where(blank, uniforms[:, :width], torch.inf)
    order = free_in_order(Sequences(sequences.tokens, blank, sequences.attention))
    order = order.gather(1, keys.gather(1, order).argsort(1))
    for step in range(order.shape[1]):
        chain = (blank.sum(1) > step).nonzero()[:, 0]
        at = order[chain, step]
        rows = Rows(chain, at[:, None], at[:, None])
        new = torch.empty_like(at)
        for index, logits in batches(model, sequences, rows):
            scores = logits[:, 0].masked_fill(~model.allowed, -torch.inf)
            new[index] = draw(scores, uniforms[chain[index], width + at[index]])
        tokens = sequences.tokens.clone()
        tokens[chain, at] = new
        sequences = Sequences(tokens, sequences.free, sequences.attention, sequences.source)
    return sequences
