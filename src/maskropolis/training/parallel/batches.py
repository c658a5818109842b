"""Dynamic batches of sentence pairs: about so many target tokens each, hardly any padding, a pure function of the step.

Pairs are sorted by target length, within it by source length with a little noise, and cut where the tokens are full, so
a batch has one target length or two. Each pass draws the noise and the order of the batches anew from (seed, pass).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from maskropolis.errors import InputError
from maskropolis.training.data.batches import stream
from maskropolis.training.parallel.pairs import Pairs

_NOISE = 2.0  # tokens: what the source length is blurred by, so that batches mix; costs some padding of sources


@dataclass(frozen=True)
class PairBatch:
    """`source` [N, S] and `target` [N, T] int64, padded at the right; their lengths [N]."""

    source: np.ndarray
    source_lengths: np.ndarray
    target: np.ndarray
    target_lengths: np.ndarray

    def rows(self, which: slice) -> PairBatch:
        return PairBatch(self.source[which], self.source_lengths[which], self.target[which], self.target_lengths[which])

    @property
    def tokens(self) -> int:
        """Target tokens, without padding."""
        return int(self.target_lengths.sum())


@dataclass(frozen=True)
class Encoded:
    """Token ids of pairs: all sources in one array, all targets in another, and where each begins."""

    source: np.ndarray
    source_starts: np.ndarray
    target: np.ndarray
    target_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.source_starts) - 1

    @property
    def source_lengths(self) -> np.ndarray:
        return np.diff(self.source_starts)

    @property
    def target_lengths(self) -> np.ndarray:
        return np.diff(self.target_starts)


def encode_pairs(pairs: Pairs, tokenizer: Any, longest: tuple[int, int]) -> tuple[Encoded, int]:
    """(token ids, pairs left out because a side has more tokens than `longest`); sources end with the end token.

    Raises `InputError` if none is left.
    """
    sources = tokenizer(pairs.sources, return_attention_mask=False, verbose=False)["input_ids"]
    targets = tokenizer(pairs.targets, add_special_tokens=False, return_attention_mask=False, verbose=False)[
        "input_ids"
    ]
    kept = [(s, t) for s, t in zip(sources, targets, strict=True) if len(s) <= longest[0] and 0 < len(t) <= longest[1]]
    if not kept:
        raise InputError(f"no pair fits: sources may have {longest[0]} tokens, targets {longest[1]}")
    return Encoded(*_flat([s for s, _ in kept]), *_flat([t for _, t in kept])), len(pairs) - len(kept)


def _flat(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return np.concatenate([np.asarray(row, dtype=np.int32) for row in rows]), starts


@dataclass(frozen=True)
class ParallelBatches:
    """The batches of a run. `tokens`: target tokens in a batch at most, padding counted. `padding`: the id for it."""

    corpus: Encoded
    tokens: int
    padding: int
    seed: int = 0

    def __post_init__(self) -> None:
        longest = int(self.corpus.target_lengths.max())
        if self.tokens < longest:
            raise InputError(
                f"a batch of {self.tokens} tokens is too small for a target of {longest}; use a larger one"
            )

    @cached_property
    def _cuts(self) -> np.ndarray:
        """Where batches begin among the pairs sorted by target length; the same in every pass."""
        lengths = np.sort(self.corpus.target_lengths)
        cuts, begin = [0], 0
        for index, length in enumerate(lengths.tolist()):
            if (index + 1 - begin) * length > self.tokens:
                cuts.append(index)
                begin = index
        return np.array([*cuts, len(lengths)])

    @property
    def batches_per_pass(self) -> int:
        return len(self._cuts) - 1

    def at(self, step: int) -> PairBatch:
        """The batch of one step."""
        number, within = divmod(step, self.batches_per_pass)
        pairs, order = self._order(number)
        place = order[within]
        return self.gather(pairs[self._cuts[place] : self._cuts[place + 1]])

    def _order(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(pairs in sorted order, order of the batches) of one pass."""
        if self._cache.get("pass") != number:
            random = stream(self.seed, 1, number)
            noise = random.random(len(self.corpus)) * _NOISE
            pairs = np.lexsort((self.corpus.source_lengths + noise, self.corpus.target_lengths))
            self._cache.update({"pass": number, "pairs": pairs, "order": random.permutation(self.batches_per_pass)})
        return self._cache["pairs"], self._cache["order"]

    @cached_property
    def _cache(self) -> dict[str, Any]:
        return {}

    def gather(self, pairs: np.ndarray) -> PairBatch:
        """The batch of the pairs with these numbers."""
        corpus = self.corpus
        source, source_lengths = self._padded(corpus.source, corpus.source_starts, pairs)
        target, target_lengths = self._padded(corpus.target, corpus.target_starts, pairs)
        return PairBatch(source, source_lengths, target, target_lengths)

    def _padded(self, flat: np.ndarray, starts: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        begin, lengths = starts[pairs], starts[pairs + 1] - starts[pairs]
        columns = np.arange(int(lengths.max()))
        inside = columns < lengths[:, None]
        at = np.minimum(begin[:, None] + columns, len(flat) - 1)
        return np.where(inside, flat[at], self.padding).astype(np.int64), lengths
