"""Diversity against definitions written out plainly, and against sacrebleu."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from maskropolis.errors import InputError
from maskropolis.evaluation.diversity import (
    GramCounts,
    Neighbours,
    Words,
    n_grams,
    repetition,
    split_words,
    unique_share,
)

sentences = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=9).map(tuple), min_size=2, max_size=8)


def all_of(listed: list[Words]) -> np.ndarray:
    return np.ones(len(listed), dtype=bool)


@settings(max_examples=40, deadline=None)
@given(sentences, st.integers(0, 255))
def test_self_bleu_is_sacrebleu_against_all_others(listed: list[Words], mask: int) -> None:
    keep = np.array([mask >> i & 1 == 0 for i in range(len(listed))])
    kept = [" ".join(words) for words, wanted in zip(listed, keep, strict=True) if wanted]
    found = GramCounts.of(listed).self_bleu(keep)
    if len(kept) < 2:
        assert np.isnan(found)
        return
    bleu = BLEU(effective_order=True, tokenize="none")
    expected = [bleu.sentence_score(text, kept[:i] + kept[i + 1 :]).score for i, text in enumerate(kept)]
    assert found == pytest.approx(np.mean(expected), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(sentences, st.integers(1, 4))
def test_distinct_counts_different_n_grams(listed: list[Words], n: int) -> None:
    grams = [gram for words in listed for gram in n_grams(words, n)]
    found = GramCounts.of(listed).distinct(n, all_of(listed))
    assert found == pytest.approx(len(set(grams)) / len(grams)) if grams else np.isnan(found)


@settings(max_examples=40, deadline=None)
@given(sentences)
def test_near_duplicates_share_four_fifths_of_their_words(listed: list[Words]) -> None:
    def near(a: Words, b: Words) -> bool:
        return 10 * sum((Counter(a) & Counter(b)).values()) >= 8 * max(len(a), len(b))

    expected = [any(near(a, b) for j, b in enumerate(listed) if j != i) for i, a in enumerate(listed)]
    assert Neighbours.of(listed).share(all_of(listed)) == pytest.approx(np.mean(expected))


def test_near_duplicates_of_the_kept_only() -> None:
    neighbours = Neighbours.of([("a", "b"), ("b", "a"), ("c",)])
    assert neighbours.share(np.array([True, True, True])) == pytest.approx(2 / 3)
    assert neighbours.share(np.array([True, False, True])) == 0
    assert np.isnan(neighbours.share(np.zeros(3, dtype=bool)))


def test_known_values() -> None:
    texts = ["the cat, the cat", "the cat, the cat", "a dog"]
    words = split_words(texts)
    assert words[0] == ("the", "cat", ",", "the", "cat")
    counts = GramCounts.of(words)
    assert counts.distinct(1, all_of(words)) == pytest.approx(5 / 12)
    assert counts.self_bleu(np.array([True, True, False])) == pytest.approx(100)
    assert unique_share(texts, all_of(words)) == pytest.approx(2 / 3)
    assert repetition(words[0], 1) == (2, 5) and repetition(words[0], 2) == (1, 4)
    assert repetition(words[2], 3) == (0, 0)


def test_other_tokenizers() -> None:
    assert split_words(["CCO"], "char") == [("C", "C", "O")]
    with pytest.raises(InputError, match=r"unknown tokenizer of words '13'; did you mean '13a'\?"):
        split_words(["a"], "13")
