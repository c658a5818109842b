"""The longest copied run against a plain search, whatever the blocks of the training text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskropolis.evaluation import copying
from maskropolis.evaluation.copying import longest_copied
from maskropolis.evaluation.diversity import Words, n_grams

lines = st.lists(st.lists(st.sampled_from("abcx"), max_size=12).map(tuple), max_size=6)


def plainly(sentence: Words, training: list[Words]) -> int:
    lengths = range(len(sentence), 0, -1)
    return next((n for n in lengths if any(set(n_grams(sentence, n)) & set(n_grams(line, n)) for line in training)), 0)


@settings(max_examples=60, deadline=None)
@given(lines.filter(len), lines)
def test_equals_the_plain_search(sentences: list[Words], training: list[Words]) -> None:
    found = longest_copied(sentences, iter(training))
    assert found.tolist() == [plainly(sentence, training) for sentence in sentences]


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    sentences = [tuple(random.choice(list("abcdef"), 12)) for _ in range(40)]
    training = [tuple(random.choice(list("abcdefgh"), 30)) for _ in range(80)]
    whole = longest_copied(sentences, training)
    monkeypatch.setattr(copying, "_BLOCK", 50)
    told: list[int] = []
    assert longest_copied(sentences, training, told.append).tolist() == whole.tolist()
    assert sum(told) == 80 * 31 and len(told) > 30
    assert whole.tolist() == [plainly(sentence, training) for sentence in sentences]


def test_case_is_ignored_and_lines_are_borders() -> None:
    sentences = [("The", "Cat", "sat"), ("on", "the"), ("new",)]
    assert longest_copied(sentences, [("the", "cat"), ("sat", "on"), ("THE",)]).tolist() == [2, 1, 0]
    assert longest_copied(sentences, []).tolist() == [0, 0, 0]


def test_runs_are_followed_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LONGEST", 3)
    assert longest_copied([("a", "b", "c", "d")], [("a", "b", "c", "d")]).tolist() == [3]
