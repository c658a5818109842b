"""Sequences that grow and shrink within their width: a token more, a token less, and where one may go.

Free positions come in runs, neighbours without a fixed token between them. Padding holds token 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.sequences import Sequences


def widened(sequences: Sequences, more: int) -> Sequences:
    """With room for `more` tokens in each row."""
    tokens = sequences.tokens.masked_fill(~sequences.attention, 0)
    free, attention = sequences.free, sequences.attention
    tokens, free, attention = (torch.nn.functional.pad(part, (0, more)) for part in (tokens, free, attention))
    return Sequences(tokens, free, attention, sequences.source)


def run_starts(sequences: Sequences) -> Tensor:
    """[C, T] bool, the first position of each run."""
    before = torch.nn.functional.pad(sequences.free, (1, 0))[:, :-1]
    return sequences.free & ~before


def run_ends(sequences: Sequences) -> Tensor:
    """[C, T] bool, the last position of each run."""
    after = torch.nn.functional.pad(sequences.free, (0, 1))[:, 1:]
    return sequences.free & ~after


def run_sizes(sequences: Sequences) -> Tensor:
    """[C, T] int64, the lengths of the runs in order, then zeros."""
    run = (run_starts(sequences).long().cumsum(1) - 1).clamp(min=0)
    return torch.zeros_like(run).scatter_add(1, run, sequences.free.long())


def slot_position(sequences: Sequences, slot: Tensor) -> Tensor:
    """[C] int64, where a token inserted at `slot` [C] will stand.

    Slots are before each free token in order, then behind each run: as many as free tokens and runs together.
    """
    free, ends = sequences.free, run_ends(sequences)
    position = torch.arange(sequences.width, device=free.device)
    count = sequences.free_counts[:, None]
    number = torch.where(free, free.long().cumsum(1) - 1, -1)  # before a free token
    behind = torch.where(ends, ends.long().cumsum(1) - 1 + count, -1)
    before = torch.where(number == slot[:, None], position, 0).sum(1)
    return before + torch.where(behind == slot[:, None], position + 1, 0).sum(1)


def inserted(sequences: Sequences, at: Tensor, token: int) -> Sequences:
    """Each row with a free `token` at `at` [C]; what was there and later moves right, the last column is lost."""
    position = torch.arange(sequences.width, device=at.device)
    source = (position - (position > at[:, None]).long()).expand(len(sequences), -1)
    here = position == at[:, None]
    return Sequences(
        sequences.tokens.gather(1, source).masked_fill(here, token),
        sequences.free.gather(1, source) | here,
        sequences.attention.gather(1, source) | here,
        sequences.source,
    )


def deleted(sequences: Sequences, at: Tensor) -> Sequences:
    """Each row without its position `at` [C]; what comes later moves to the left."""
    position = torch.arange(sequences.width, device=at.device)
    source = (position + (position >= at[:, None]).long()).clamp(max=sequences.width - 1)
    last = position == sequences.width - 1
    attention = sequences.attention.gather(1, source.expand(len(sequences), -1)) & ~last
    return Sequences(
        sequences.tokens.gather(1, source).masked_fill(~attention, 0),
        sequences.free.gather(1, source) & ~last,
        attention,
        sequences.source,
    )
