"""Line-aligned text in two languages, for training: read whole, with every fault named."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskropolis.errors import InputError
from maskropolis.records import read_lines
from maskropolis.training.data.batches import stream


@dataclass(frozen=True)
class Pairs:
    """Sources and targets, the numbers of their lines from 0; `skipped` lines were empty on one side or both."""

    sources: list[str]
    targets: list[str]
    lines: list[int]
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.sources)

    def at(self, index: Sequence[int]) -> Pairs:
        """Some of the pairs."""
        sources, targets = [self.sources[i] for i in index], [self.targets[i] for i in index]
        return Pairs(sources, targets, [self.lines[i] for i in index], self.skipped)

    def fingerprint(self) -> str:
        """SHA-256 of both texts."""
        digest = hashlib.sha256()
        for text in (*self.sources, "\0", *self.targets):
            digest.update(text.encode() + b"\n")
        return digest.hexdigest()


def read_pairs(source: str, target: str) -> Pairs:
    """The pairs of two files. Raises `InputError` if they differ in length or hold no pair."""
    sources, targets = read_all(source), read_all(target)
    require_equal(source, len(sources), target, len(targets))
    kept = [i for i, pair in enumerate(zip(sources, targets, strict=True)) if all(pair)]
    if not kept:
        raise InputError(f"'{source}' and '{target}' hold no pair of lines that are not empty")
    return Pairs([sources[i] for i in kept], [targets[i] for i in kept], kept, len(sources) - len(kept))


def read_all(path: str) -> list[str]:
    """All lines, white space at their ends removed; an empty line is an empty string."""
    return [line.strip() for _, line in read_lines(path)]


def require_equal(first: str, lines: int, second: str, others: int) -> None:
    """Raises `InputError` unless two files have as many lines."""
    if lines != others:
        raise InputError(
            f"'{first}' has {lines} lines and '{second}' has {others}; expected as many, line by line in parallel"
        )


def hold_out(pairs: Pairs, count: int, seed: int) -> tuple[Pairs, Pairs]:
    """(training, validation): `count` pairs drawn at random, but at most a tenth. Raises `InputError` for too few."""
    count = min(count, len(pairs) // 10)
    if count < 1:
        raise InputError(f"{len(pairs)} pairs are too few to hold some out; give --valid-source and --valid-target")
    order = stream(seed, 6).permutation(len(pairs))
    return pairs.at(np.sort(order[count:]).tolist()), pairs.at(np.sort(order[:count]).tolist())


def distilled(pairs: Pairs, path: str, source: str, lines: int) -> Pairs:
    """The pairs with the lines of `path` as targets: what another model made of the `lines` lines of `source`.

    Pairs that it left empty are dropped. Raises `InputError` if the files differ in length or nothing is left.
    """
    texts = read_all(path)
    require_equal(source, lines, path, len(texts))
    kept = [i for i, line in enumerate(pairs.lines) if texts[line]]
    if not kept:
        raise InputError(f"'{path}' holds no translation of the training pairs")
    some = pairs.at(kept)
    return Pairs(some.sources, [texts[line] for line in some.lines], some.lines, pairs.skipped + len(pairs) - len(kept))
