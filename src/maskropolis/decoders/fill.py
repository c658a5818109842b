"""Fills the masked positions of a start in one forward pass, or with random tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.errors import InputError, unknown_name
from maskropolis.models.forward.rows import Rows, batches
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw, pick
from maskropolis.sequences import Sequences

FILLS = ("greedy", "sampled", "random")


def fill(model: MaskedLM, sequences: Sequences, how: str, uniforms: Tensor) -> Sequences:
    """A copy in which every free position that holds the mask token holds an allowed token.

    `greedy` takes the likeliest token at each position, `sampled` draws each from its conditional given the visible
    tokens (both with all masks present, one row a chain), `random` draws uniformly from the allowed vocabulary.
    `uniforms` [C, T]. Raises `InputError` for another name.
    """
    if how not in FILLS:
        raise unknown_name("start", how, FILLS)
    blank = sequences.free & (sequences.tokens == model.mask_token)
    if not bool(blank.any()):
        return sequences
    if how == "random":
        choices = model.allowed.nonzero()[:, 0]
        drawn = torch.stack(
            [choices[pick(torch.full_like(column, len(choices), dtype=torch.long), column)] for column in uniforms.T], 1
        )
        return _put(sequences, blank, drawn)
    filled = sequences.tokens.clone()
    rows = _rows(blank)
    for index, logits in batches(model, sequences, rows):
        chain, positions = rows.chain[index], rows.asked[index]
        for j in range(positions.shape[1]):
            scores = logits[:, j].masked_fill(~model.allowed, -torch.inf)
            at = positions[:, j]
            token = scores.argmax(-1) if how == "greedy" else draw(scores, uniforms[chain, at])
            filled[chain, at] = token
    return _put(sequences, blank, filled)


def require_allowed(model: MaskedLM, sequences: Sequences, texts: list[str]) -> None:
    """Raises `InputError` if a free position holds a token outside the allowed vocabulary, say an unknown character."""
    bad = sequences.free & ~model.allowed[sequences.tokens]
    if bool(bad.any()):
        chain = int(bad.any(1).nonzero()[0, 0])
        count = int(bad[chain].sum())
        raise InputError(
            f"{count} free token(s) of {texts[chain][:60]!r} are unknown to the model's vocabulary or special; "
            "replace them or fix them with --fix"
        )


def _rows(blank: Tensor) -> Rows:
    """One row a chain that has blanks; asked at all of them, short chains repeating their first."""
    chain = blank.any(1).nonzero()[:, 0]
    counts = blank[chain].sum(1)
    order = torch.argsort((~blank[chain]).to(torch.uint8), dim=1, stable=True)[:, : int(counts.max())]
    used = torch.arange(order.shape[1], device=order.device) < counts[:, None]
    positions = torch.where(used, order, order[:, :1])
    return Rows(chain, positions, positions)


def _put(sequences: Sequences, where: Tensor, tokens: Tensor) -> Sequences:
    every = torch.arange(sequences.width, device=sequences.device).expand(len(sequences), -1)
    return sequences.with_tokens(every, torch.where(where, tokens, sequences.tokens))
