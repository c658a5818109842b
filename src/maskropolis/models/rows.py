"""Model rows: many masked copies of many sequences, packed by length into forward passes under a token budget.

A *row* is one masked sequence through the network, the unit of cost. Every masked conditional that the package uses is
evaluated here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.errors import NumericalError
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences


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
    logits_a_row = rows.asked.shape[1] * model.vocabulary_size
    start = 0
    while start < len(sorted_lengths):
        width = sorted_lengths[start]
        most = min(model.budget.tokens // width, model.budget.logits // logits_a_row)
        stop = min(len(sorted_lengths), start + max(1, most))
        if not model.padding_safe:
            while sorted_lengths[stop - 1] != width:
                stop -= 1
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
