"""How different the sentences of a set are from one another, and how much a sentence repeats itself.

    distinct-n       different n-grams of the set / all n-grams of the set                     Li et al. (2016)
    self-BLEU        mean over sentences of BLEU with all the others as references             Zhu et al. (2018)
    unique           different sentences / sentences
    near-duplicates  share of sentences with another one that has 80% of the words in common:
                     |A ∩ B| ≥ 0.8 max(|A|, |B|), words as multisets, their order ignored
    repetition-n     within a sentence, 1 − different n-grams / n-grams                        Welleck et al. (2020)

All but repetition fall or rise with the number of sentences: compare sets of equal size. Words are what a tokenizer of
sacrebleu makes of the text, punctuation included; 13a by default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maskropolis.errors import unknown_name

ORDERS = 4
NEAR = 0.8
MOST_PAIRED = 2000
"""Near-duplicates are looked for among this many sentences at most: time and memory grow with the square."""

TOKENIZERS = ("13a", "intl", "char", "zh", "none")

Words = tuple[str, ...]


def split_words(texts: Sequence[str], tokenizer: str = "13a") -> list[Words]:
    """The words of each text. Raises `InputError` for a tokenizer that is none of `TOKENIZERS`."""
    from sacrebleu.metrics import BLEU

    if tokenizer not in TOKENIZERS:
        raise unknown_name("tokenizer of words", tokenizer, TOKENIZERS)
    split = BLEU(tokenize=tokenizer).tokenizer
    return [tuple(split(text.strip()).split()) for text in texts]


def n_grams(words: Words, n: int) -> list[Words]:
    """All n-grams in order, repeated ones too."""
    return [words[i : i + n] for i in range(len(words) - n + 1)]


def repetition(words: Words, n: int) -> tuple[int, int]:
    """(n-grams that occurred before in the sentence, n-grams)."""
    grams = n_grams(words, n)
    return len(grams) - len(set(grams)), len(grams)


@dataclass(frozen=True, eq=False)
class GramCounts:
    """How often each of G n-grams occurs in each of N sentences, as M triples sorted by n-gram, then falling count.

    Attributes:
        gram: [M] index of the n-gram, over the orders 1 … 4 together.
        order: [M] its order n.
        sentence, count: [M].
        lengths: [N] words of each sentence.
    """

    gram: np.ndarray
    order: np.ndarray
    sentence: np.ndarray
    count: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, sentences: Sequence[Words], orders: int = ORDERS) -> GramCounts:
        known: dict[Words, int] = {}
        triples = [
            (known.setdefault(gram, len(known)), n, index, count)
            for index, words in enumerate(sentences)
            for n in range(1, orders + 1)
            for gram, count in Counter(n_grams(words, n)).items()
        ]
        columns = np.array(triples, dtype=np.int64).reshape(-1, 4)
        columns = columns[np.lexsort((-columns[:, 3], columns[:, 0]))]
        gram, order, sentence, count = columns.T
        return cls(gram, order, sentence, count, np.array([len(words) for words in sentences], dtype=np.int64))

    def distinct(self, n: int, keep: np.ndarray) -> float:
        """Distinct-n of the sentences kept ([N] bool); NaN if they have no n-grams."""
        here = (self.order == n) & keep[self.sentence]
        total, gram = int(self.count[here].sum()), self.gram[here]  # equal n-grams stand together
        return (1 + int((gram[1:] != gram[:-1]).sum())) / total if total else float("nan")

    def self_bleu(self, keep: np.ndarray) -> float:
        """Mean sentence BLEU (0 to 100) of each kept sentence against all other kept ones; NaN below two.

        A matched n-gram counts at most as often as it occurs in any one of the others: the largest count of another
        sentence. BLEU of these counts is sacrebleu's, for single sentences: `effective_order`, exponential smoothing.
        """
        from sacrebleu.metrics import BLEU

        if keep.sum() < 2:
            return float("nan")
        correct, total = self._matches(keep)
        references = _nearest_other(self.lengths[keep])
        scores = [
            BLEU.compute_bleu(c, t, int(length), reference, smooth_method="exp", effective_order=True).score
            for c, t, length, reference in zip(
                correct[keep].tolist(), total[keep].tolist(), self.lengths[keep], references, strict=True
            )
        ]
        return float(np.mean(scores))

    def _matches(self, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """([N, 4] n-grams found in another kept sentence, clipped, [N, 4] n-grams)."""
        here = keep[self.sentence]
        gram, order, sentence, count = (c[here] for c in (self.gram, self.order, self.sentence, self.count))
        start = np.flatnonzero(np.r_[True, gram[1:] != gram[:-1]])
        group = np.cumsum(np.r_[True, gram[1:] != gram[:-1]]) - 1
        second = np.minimum(start + 1, len(gram) - 1)
        largest, next_largest = count[start], np.where(gram[second] == gram[start], count[second], 0)
        next_largest = np.where(second == start, 0, next_largest)
        others = np.where(sentence == sentence[start][group], next_largest[group], largest[group])
        cell, cells = sentence * ORDERS + order - 1, len(self.lengths) * ORDERS
        sums = (np.bincount(cell, value, cells) for value in (np.minimum(count, others), count))
        correct, total = (found.astype(np.int64).reshape(-1, ORDERS) for found in sums)
        return correct, total


def _nearest_other(lengths: np.ndarray) -> list[int]:
    """For each of N ≥ 2 lengths the nearest among the others; the shorter of two equally near, as in sacrebleu."""
    counts = Counter(lengths.tolist())
    known = sorted(counts)
    nearest = {}
    for length in known:
        others = [other for other in known if other != length or counts[length] > 1]
        nearest[length] = min(others, key=lambda other: (abs(other - length), other))
    return [nearest[length] for length in lengths.tolist()]


def unique_share(texts: Sequence[Any], keep: np.ndarray) -> float:
    """Different texts / texts, of those kept."""
    kept = [text for text, wanted in zip(texts, keep, strict=True) if wanted]
    return len(set(kept)) / len(kept)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Which of N sentences are near-duplicates of which. `pairs`: sparse [N, N] bool, without the diagonal."""

    pairs: Any

    @classmethod
    def of(cls, sentences: Sequence[Words], near: float = NEAR) -> Neighbours:
        from scipy.sparse import csr_matrix

        known: dict[tuple[str, int], int] = {}
        rows, columns = [], []
        for row, words in enumerate(sentences):
            for word, count in Counter(words).items():
                for repeat in range(count):  # the second "the" of a sentence matches a second "the" only
                    rows.append(row)
                    columns.append(known.setdefault((word, repeat), len(known)))
        shape = (len(sentences), max(1, len(known)))
        matrix = csr_matrix((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape)
        lengths = np.array([len(words) for words in sentences])
        common = (matrix @ matrix.T).tocoo()
        longest = np.maximum(lengths[common.row], lengths[common.col])
        close = (common.data >= near * longest - 1e-9) & (common.row != common.col)
        found = (np.ones(int(close.sum()), dtype=np.int32), (common.row[close], common.col[close]))
        return cls(csr_matrix(found, (len(sentences), len(sentences))))

    def share(self, keep: np.ndarray) -> float:
        """Share of the kept sentences with a near-duplicate among the other kept ones; NaN if none is kept."""
        has = (self.pairs @ keep.astype(np.int32)) > 0
        return float(has[keep].mean()) if keep.any() else float("nan")
