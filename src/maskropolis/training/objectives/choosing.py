"""Which positions are chosen: each token on its own, whole words, or spans of words.

Sources: Devlin et al. (2019) for tokens and, in the authors' later release, whole words; Joshi et al. (2020), SpanBERT,
for spans of geometric length.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from maskropolis.errors import unknown_name

Choice = Callable[[np.ndarray, np.ndarray, np.ndarray, np.random.Generator], np.ndarray]

SPAN_STOP = 0.2  # probability that a span ends after each word
SPAN_LONGEST = 10  # words


def tokens(eligible: np.ndarray, starts: np.ndarray, rates: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each eligible token with probability rates[row], independently; at least one in the batch. [N, T] bool.

    `eligible` [N, T] bool, `starts` [N, T] bool, `rates` [N].
    """
    chosen = (random.random(eligible.shape) < rates[:, None]) & eligible
    return chosen if chosen.any() else _one(eligible, random)


def words(eligible: np.ndarray, starts: np.ndarray, rates: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each whole word with probability rates[row]: all of its pieces or none."""
    number = np.cumsum(starts, axis=1)
    by_word = random.random((len(eligible), eligible.shape[1] + 1)) < rates[:, None]
    chosen = np.take_along_axis(by_word, number, axis=1) & eligible
    return chosen if chosen.any() else _one(eligible, random)


def spans(eligible: np.ndarray, starts: np.ndarray, rates: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Spans of words, lengths geometric(0.2) cut at 10, until rates[row] of a row's eligible tokens are chosen."""
    chosen = np.zeros_like(eligible)
    number = np.cumsum(starts, axis=1)
    for row in range(len(eligible)):
        wanted = rates[row] * eligible[row].sum()
        # A fractional last token is chosen with the probability of its fraction, so that the expected share is exact.
        budget = int(wanted) + (random.random() < wanted - int(wanted))
        _fill(chosen[row], eligible[row], number[row], budget, random)
    return chosen if chosen.any() else _one(eligible, random)


def _fill(
    chosen: np.ndarray, eligible: np.ndarray, number: np.ndarray, budget: int, random: np.random.Generator
) -> None:
    """Adds spans to one row, in place, until `budget` positions are chosen; the last span is cut to fit."""
    left = budget
    while left > 0:
        free = np.flatnonzero(eligible & ~chosen)
        if not free.size:
            return
        first = number[random.choice(free)]
        length = min(int(random.geometric(SPAN_STOP)), SPAN_LONGEST)
        inside = np.flatnonzero((number >= first) & (number < first + length) & eligible & ~chosen)[:left]
        chosen[inside] = True
        left -= len(inside)


def _one(eligible: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A single eligible position of the batch, so that a loss always exists."""
    chosen = np.zeros_like(eligible)
    where = np.flatnonzero(eligible)
    if where.size:
        chosen.flat[random.choice(where)] = True
    return chosen


CHOICES: dict[str, Choice] = {"token": tokens, "word": words, "span": spans}


def choice(name: str) -> Choice:
    """The rule called `name`. Raises `InputError`."""
    if name not in CHOICES:
        raise unknown_name("way of choosing positions", name, CHOICES)
    return CHOICES[name]
