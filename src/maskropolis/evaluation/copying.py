"""How much of a sentence stands in a training text: the longest run of words that both have, exactly.

The n-grams of the sentences are numbered level by level: an n-gram is the pair (number of its first n − 1 words, last
word), so a sorted array of pairs for each n holds them all. The training text streams past them: a place whose n − 1
words were found is looked up at level n. Memory is that of the sentences' n-grams and of one block of text, whatever
the length of the training text. Case is ignored; a run does not cross the end of a line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from maskropolis.evaluation.diversity import Words

_BLOCK = 1 << 17
"""Words of the training text that are looked up together."""

LONGEST = 200
"""Runs are followed up to this many words."""


def longest_copied(
    sentences: Sequence[Words], training: Iterable[Words], observe: Callable[[int], None] = lambda words: None
) -> np.ndarray:
    """[N] words in the longest n-gram of each sentence that occurs in a line of `training`; 0 if no word does.

    `observe` is told how many words of the training text were just read.
    """
    numbers: dict[str, int] = {}
    coded = [[numbers.setdefault(word.lower(), len(numbers)) for word in words] for words in sentences]
    text, owner = _joined(coded)
    levels, members = _levels(text, owner, len(numbers))
    met = [np.zeros(len(keys), dtype=bool) for keys in levels]
    for block in _blocks(training, numbers):
        _mark(block, levels, met, len(numbers))
        observe(len(block))
    longest = np.zeros(len(sentences), dtype=np.int64)
    for n, (found, (gram, sentence)) in enumerate(zip(met, members, strict=True), start=1):
        longest[sentence[found[gram]]] = n
    return longest


def _joined(lines: Iterable[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """(all words with −1 after each line, the line that each belongs to)."""
    listed = [np.array([*line, -1], dtype=np.int64) for line in lines]
    owner = np.repeat(np.arange(len(listed)), [len(line) for line in listed])
    return np.concatenate([np.array([-1], dtype=np.int64), *listed])[1:], owner


def _levels(
    text: np.ndarray, owner: np.ndarray, size: int
) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
    """For n = 1, 2 …: sorted keys `number of the (n−1)-gram · size + last word`; (n-gram, sentence) of each place."""
    levels, members = [], []
    places, prefix = np.arange(len(text)), np.zeros(len(text), dtype=np.int64)
    for n in range(1, LONGEST + 1):
        places, prefix, last = _extended(text, places, prefix, n)
        if not len(places):
            break
        keys, prefix = np.unique(prefix * size + last, return_inverse=True)
        levels.append(keys)
        members.append((prefix, owner[places]))
    return levels, members


def _extended(
    text: np.ndarray, places: np.ndarray, prefix: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of (n−1)-grams that go on for another known word: (places, their numbers, that word)."""
    inside = places + n - 1 < len(text)
    places, prefix = places[inside], prefix[inside]
    last = text[places + n - 1]
    goes_on = last >= 0
    return places[goes_on], prefix[goes_on], last[goes_on]


def _mark(text: np.ndarray, levels: list[np.ndarray], met: list[np.ndarray], size: int) -> None:
    """Sets met[n − 1] where an n-gram of the sentences occurs in `text`."""
    places, prefix = np.arange(len(text)), np.zeros(len(text), dtype=np.int64)
    for n, keys in enumerate(levels, start=1):
        places, prefix, last = _extended(text, places, prefix, n)
        wanted = prefix * size + last
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        known = keys[at] == wanted
        places, prefix = places[known], at[known]
        if not len(places):
            return
        met[n - 1][prefix] = True


def _blocks(training: Iterable[Words], numbers: dict[str, int]) -> Iterator[np.ndarray]:
    """Whole lines as numbers, −1 for words that no sentence has and after each line."""
    for _, group in itertools.groupby(_counted(training), key=lambda item: item[0] // _BLOCK):
        block: list[int] = []
        for _, words in group:
            block += [numbers.get(word.lower(), -1) for word in words]
            block.append(-1)
        yield np.array(block, dtype=np.int64)


def _counted(lines: Iterable[Words]) -> Iterator[tuple[int, Words]]:
    """(words before the line, line)."""
    before = 0
    for words in lines:
        yield before, words
        before += len(words) + 1
