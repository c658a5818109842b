"""Which tokens make up the batch of a step: a pure function of (corpus, seed, step), so that a resumed run continues
with exactly the batches it would have seen.

Two kinds of batches, neither with any padding. *Packed*: rows of the full length cut from the stream, paragraphs
running on after a separator; each pass over the corpus begins at another offset and in another order. *Alone*: whole
sentences of one length, each between its own opener and separator, so that short texts are not strange to the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maskropolis.errors import InputError
from maskropolis.training.data.corpus import Corpus

_SHORTEST = 2  # tokens of a sentence worth a row of its own


def stream(seed: int, *counters: int) -> np.random.Generator:
    """The generator of one purpose: Philox keyed by the seed, at a counter; nothing is carried from draw to draw."""
    words = [*counters, 0, 0, 0][:3]
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, *words]))


@dataclass(frozen=True)
class Batch:
    """`tokens` [N, T] int64 and `starts` [N, T] bool (True where a word begins)."""

    tokens: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Batches:
    """The batches of a training run. `alone`: the share of batches made of single sentences.

    Raises `InputError` if the corpus does not fill one row.
    """

    corpus: Corpus
    length: int
    rows: int
    opener: int | None
    separator: int | None
    seed: int = 0
    alone: float = 0.0

    def __post_init__(self) -> None:
        if len(self.corpus) < self._body:
            raise InputError(
                f"too little text: {len(self.corpus)} tokens do not fill one row of {self.length}; "
                "give more text or a smaller --length"
            )

    @property
    def _body(self) -> int:
        return self.length - (self.opener is not None)

    @property
    def rows_per_pass(self) -> int:
        """Packed rows in one pass over the corpus."""
        return max(1, (len(self.corpus) - self._body + 1) // self._body)

    def at(self, step: int) -> Batch:
        """The batch of one step."""
        before = int(step * self.alone)
        if int((step + 1) * self.alone) > before and self._lengths.size:
            return self._sentences(step)
        return self._packed(step - before if self._lengths.size else step)

    def in_order(self, limit: int | None = None) -> Batch:
        """The first `limit` packed rows from the start of the corpus, evenly spread over it"""
        every = len(self.corpus) // self._body
        chosen = np.arange(every) if limit is None or limit >= every else np.linspace(0, every - 1, limit).astype(int)
        return self._cut(chosen * self._body)

    def _packed(self, number: int) -> Batch:
        rows = np.arange(number * self.rows, (number + 1) * self.rows)
        passes, within = np.divmod(rows, self.rows_per_pass)
        begins = np.empty(self.rows, dtype=np.int64)
        for one in np.unique(passes):
            shift, order = self._order(int(one))
            here = passes == one
            begins[here] = shift + order[within[here]] * self._body
        return self._cut(begins)

    def _order(self, number: int) -> tuple[int, np.ndarray]:
        """(offset, order of the rows) of one pass."""
        if self._cache.get("pass") != number:
            random = stream(self.seed, 1, number)
            slack = len(self.corpus) - self.rows_per_pass * self._body
            self._cache.update({"pass": number, "shift": int(random.integers(0, min(slack, self._body - 1) + 1))})
            self._cache["order"] = random.permutation(self.rows_per_pass)
        return self._cache["shift"], self._cache["order"]

    @cached_property
    def _cache(self) -> dict:
        return {}

    def _cut(self, begins: np.ndarray) -> Batch:
        at = begins[:, None] + np.arange(self._body)
        return self._framed(self.corpus.ids[at], self.corpus.starts[at], self.opener, None)

    @staticmethod
    def _framed(ids: np.ndarray, starts: np.ndarray, opener: int | None, separator: int | None) -> Batch:
        """Adds the opener before and the separator after every row."""
        edges = [(0, 0), (int(opener is not None), int(separator is not None))]
        tokens = np.pad(ids.astype(np.int64), edges)
        if opener is not None:
            tokens[:, 0] = opener
        if separator is not None:
            tokens[:, -1] = separator
        return Batch(tokens, np.pad(starts.astype(bool), edges, constant_values=True))

    @cached_property
    def _by_length(self) -> np.ndarray:
        """The sentences that fit a row, ordered by length, [U, 2]."""
        if not self.alone:
            return np.zeros((0, 2), dtype=np.int64)
        room = self.length - (self.opener is not None) - (self.separator is not None)
        units = np.asarray(self.corpus.units)
        units = units[(units[:, 1] >= _SHORTEST) & (units[:, 1] <= room)]
        return units[np.argsort(units[:, 1], kind="stable")]

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.unique(self._by_length[:, 1])

    def _sentences(self, step: int) -> Batch:
        """Sentences of one length: the length in proportion to the tokens it accounts for, as many as fill a batch."""
        random = stream(self.seed, 2, step)
        anyone = self._by_length[np.searchsorted(self._ends, random.integers(0, self._ends[-1]), side="right")]
        length = int(anyone[1])
        low, high = np.searchsorted(self._by_length[:, 1], [length, length + 1])
        extra = (self.opener is not None) + (self.separator is not None)
        wanted = max(1, self.rows * self.length // (length + extra))
        chosen = low + random.choice(high - low, size=min(wanted, high - low), replace=False)
        at = self._by_length[chosen, :1] + np.arange(length)
        return self._framed(self.corpus.ids[at], self.corpus.starts[at], self.opener, self.separator)

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self._by_length[:, 1])
