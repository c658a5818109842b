"""Raw and norm energy of texts under a masked language model, both from one set of n model rows a text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from maskropolis.models.forward.rows import batches, single_mask_rows
from maskropolis.models.text.context import encode_in_context
from maskropolis.targets.energy import NORM, RAW

_CHUNK = 256
"""Texts whose rows are sorted together."""


@dataclass(frozen=True)
class TextEnergy:
    """Energies of one text of `tokens` free positions; norm in nats, raw in logits."""

    norm: float
    raw: float
    tokens: int


def energies(
    texts: Iterable[str], model: Any, observe: Callable[[int], None] = lambda texts: None
) -> Iterator[TextEnergy]:
    """Stream the energies of texts in order; `observe` is told how many texts are done.

    `model` is a `MaskedLM` with a `codec`. Raises `InputError` naming a text that is too long or has a mask token.
    """
    numbered = enumerate(texts, start=1)
    while chunk := list(itertools.islice(numbered, _CHUNK)):
        yield from _of_chunk([(f"text {number}", text) for number, text in chunk], model)
        observe(len(chunk))


def _of_chunk(named: Sequence[tuple[str, str]], model: Any) -> Iterator[TextEnergy]:
    encoded = [encode_in_context(model.codec, text, where=where) for where, text in named]
    sequences = model.codec.pad([one.ids for one in encoded], [one.scored for one in encoded]).to(model.device)
    rows = single_mask_rows(sequences)
    found = torch.zeros(2, len(encoded), dtype=torch.float64, device=sequences.device)
    for index, logits in batches(model, sequences, rows):
        chain, at = rows.chain[index], rows.asked[index, 0]
        tokens = sequences.tokens[chain, at]
        for row, energy in enumerate((NORM, RAW)):
            found[row].index_add_(0, chain, energy.term(logits[:, 0], tokens))
    for norm, raw, one in zip(*found.tolist(), encoded, strict=True):
        yield TextEnergy(norm, raw, sum(one.scored))
