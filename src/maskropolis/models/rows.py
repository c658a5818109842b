"""Model rows: many masked copies of many sequences, packed by length into forward passes under a token budget.

A *row* is one masked sequence through the network, the unit of cost. Every masked conditional that the package uses is
evaluated here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from maskropolis.errors import NumericalError
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences

PADDING = 0.05  # of the tokens of a batch, at most
SMALL = 512  # tokens


@dataclass(frozen=True, eq=False)
class Rows:
    """N rows to evaluate.

    Attributes:
        chain: [N] int64, which sequence a row is a copy of.
        masked: [N, M] int64, positions that hold the mask token (a position may be repeated to fill up).
        asked: [N, K] int64, positions whose logits are wanted.
    """

    chain: Tensor
    masked: Tensor
    asked: Tensor

    def __len__(self) -> int:
        return self.chain.shape[0]

    def at(self, index: Tensor) -> Rows:
        return Rows(self.chain[index], self.masked[index], self.asked[index])


def single_mask_rows(sequences: Sequences, skip: Tensor | None = None) -> Rows:
    """One row for each free position of each chain, masked and asked there; `skip` [C, T] bool leaves some out."""
    wanted = sequences.free if skip is None else sequences.free & ~skip
    chain, position = wanted.nonzero(as_tuple=True)
    return Rows(chain, position[:, None], position[:, None])


def batches(model: MaskedLM, sequences: Sequences, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
    """Evaluate `rows`; yields (index [n] into rows, logits [n, K, V]), longest rows first, each row once.

    When memory runs out, the token budget of the model is halved and the same rows are tried again.
    Raises `NumericalError` with the chains that met NaN or infinite logits.
    """
    if not len(rows):
        return
    lengths = sequences.lengths[rows.chain]
    order = torch.argsort(lengths, descending=True, stable=True)
    sorted_lengths = lengths[order].tolist()
    ends = list(accumulate(sorted_lengths, initial=0))
    logits_a_row = rows.asked.shape[1] * model.vocabulary_size
    start = 0
    while start < len(sorted_lengths):
        width = sorted_lengths[start]
        most = max(1, min(model.budget.tokens // width, model.budget.logits // logits_a_row))
        stop = _last_that_fits(ends, start, min(len(sorted_lengths), start + most), model.padding_safe)
        index = order[start:stop]
        try:
            logits = _forward(model, sequences, rows.at(index), width)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _out_of_memory(error) or stop - start == 1:
                raise
            model.budget.tokens = max(1, (stop - start) // 2 * width)
            continue
        _require_finite(logits, rows.chain[index])
        yield index, logits
        start = stop


def _last_that_fits(ends: list[int], start: int, stop: int, padding_safe: bool) -> int:
    """The largest end of a batch, up to `stop`, with at most `PADDING` of its tokens padding (none if unsafe).

    `ends` are the cumulated lengths, longest row first, so the share of padding grows with the end and can be bisected.
    Up to `SMALL` tokens, one pass with more padding costs less than several.
    """
    width = ends[start + 1] - ends[start]
    share, small = (PADDING, SMALL) if padding_safe else (0.0, 0)

    def wasteful(end: int) -> bool:
        padded = width * (end - start)
        return padded > small and ends[end] - ends[start] < (1 - share) * padded

    return bisect_left(range(stop + 1), True, lo=start + 2, key=wasteful) - 1


def _forward(model: MaskedLM, sequences: Sequences, rows: Rows, width: int) -> Tensor:
    copies = sequences.rows(rows.chain)
    copies = Sequences(copies.tokens[:, :width], copies.free[:, :width], copies.attention[:, :width], copies.source)
    return model.logits(copies.masked(rows.masked, model.mask_token), rows.asked)


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text


def _require_finite(logits: Tensor, chain: Tensor) -> None:
    """A whole row of −inf, a +inf or a NaN is an error; single −inf logits (impossible tokens) are not."""
    good = logits.amax(-1).isfinite().all(-1)
    if not bool(good.all()):
        raise NumericalError("the model returned NaN or infinite logits", chains=chain[~good].unique().tolist())
