"""Real sentences with exactly n tokens, for starts, for the reference row and for nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from maskropolis.errors import InputError


def by_length(model: Any, texts: Iterable[str], lengths: Sequence[int], most: int, seed: int) -> dict[int, list[str]]:
    """Up to `most` sentences for each length, in an order drawn from the seed; none with unknown tokens."""
    found: dict[int, list[str]] = {length: [] for length in lengths}
    frame = sum(map(len, model.codec.frame))
    allowed = model.allowed.tolist()
    listed = sorted(set(texts))
    for index in np.random.Generator(np.random.Philox(key=seed)).permutation(len(listed)).tolist():
        ids = model.codec.ids(listed[index])
        length = len(ids) - frame
        if length not in found or len(found[length]) >= most:
            continue
        if all(allowed[token] for token in ids[len(model.codec.frame[0]) :][:length]):
            found[length].append(listed[index])
    return found


def divided(sentences: Sequence[str], starts: int, samples: int, length: int) -> tuple[list[str], list[str]]:
    """(starts, reference), each up to `samples`: apart where there are enough, at any rate none of the first `starts`
    in the reference.

    Raises `InputError` if fewer than half of `samples` are left for the reference.
    """
    least = starts + samples // 2
    if len(sentences) < least:
        raise InputError(
            f"the held-out books have {len(sentences)} sentences of {length} tokens; expected at least {least}: "
            f"for {starts} starts and {samples // 2} references"
        )
    return list(sentences[:samples]), list(sentences[max(starts, len(sentences) - samples) :])
