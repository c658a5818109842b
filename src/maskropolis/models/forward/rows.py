"""Model rows: many masked copies of many sequences, packed by length into forward passes under a token budget.

A *row* is one masked sequence through the network, the unit of cost. Every masked conditional that the package uses is
evaluated here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from maskropolis.errors import NumericalError, out_of_memory
from maskropolis.models.forward.differentiable import DifferentiableMaskedLM, Term
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences

PADDING = 0.05  # of the tokens of a batch, at most
SMALL = 512  # tokens
WITH_GRADIENT = 0.25  # of the token budget, for a batch whose gradient is wanted

Found = TypeVar("Found")


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
    logits_a_row = rows.asked.shape[1] * model.vocabulary_size
    for index, logits in _packed(model, sequences, rows, logits_a_row, _forward):
        _require_finite(logits, rows.chain[index])
        yield index, logits


def gradient_batches(
    model: DifferentiableMaskedLM, sequences: Sequences, rows: Rows, term: Term
) -> Iterator[tuple[Tensor, tuple[Tensor, Tensor]]]:
    """As `batches` for rows that ask at one position each, with the slopes of term(logits, token that stands there).

    Yields (index [n], (logits [n, V], slopes [n, t, H])), where t is the longest of these rows. A batch holds a quarter
    of the tokens of `batches`, because every layer's values are held for the way back.
    """

    def both(_: MaskedLM, of: Sequences, some: Rows, width: int) -> tuple[Tensor, Tensor]:
        copies, at = _copies(of, some, width), some.asked[:, 0]
        return model.logits_and_slopes(copies.masked(some.masked, model.mask_token), at, copies.tokens_at(at), term)

    for index, (logits, slopes) in _packed(model, sequences, rows, model.vocabulary_size, both, WITH_GRADIENT):
        _require_finite(logits[:, None], rows.chain[index])
        _require_finite(slopes.abs(), rows.chain[index], "gradients")
        yield index, (logits, slopes)


def _packed(
    model: MaskedLM,
    sequences: Sequences,
    rows: Rows,
    logits_a_row: int,
    compute: Callable[[MaskedLM, Sequences, Rows, int], Found],
    share: float = 1.0,
) -> Iterator[tuple[Tensor, Found]]:
    """(index [n] into rows, what `compute` makes of those n rows), under `share` of the token budget."""
    if not len(rows):
        return
    lengths = sequences.lengths[rows.chain]
    order = torch.argsort(lengths, descending=True, stable=True)
    sorted_lengths = lengths[order].tolist()
    ends = list(accumulate(sorted_lengths, initial=0))
    start = 0
    while start < len(sorted_lengths):
        width = sorted_lengths[start]
        most = max(1, min(int(share * model.budget.tokens) // width, model.budget.logits // logits_a_row))
        stop = _last_that_fits(ends, start, min(len(sorted_lengths), start + most), model.padding_safe)
        index = order[start:stop]
        try:
            found = compute(model, sequences, rows.at(index), width)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not (isinstance(error, torch.OutOfMemoryError) or out_of_memory(error)) or stop - start == 1:
                raise
            model.budget.tokens = max(1, int((stop - start) // 2 * width / share))
            continue
        yield index, found
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
    return model.logits(_copies(sequences, rows, width).masked(rows.masked, model.mask_token), rows.asked)


def _copies(sequences: Sequences, rows: Rows, width: int) -> Sequences:
    copies = sequences.rows(rows.chain)
    return Sequences(copies.tokens[:, :width], copies.free[:, :width], copies.attention[:, :width], copies.source)


def _require_finite(values: Tensor, chain: Tensor, what: str = "logits") -> None:
    """A whole row of −inf, a +inf or a NaN is an error; single −inf logits (impossible tokens) are not."""
    good = values.amax(-1).isfinite().all(-1)
    if not bool(good.all()):
        raise NumericalError(f"the model returned NaN or infinite {what}", chains=chain[~good].unique().tolist())
