"""A synthetic language pair: every word has one translation, and neighbours change places by a rule of their kind.

The target of `w1 w2 …` is the cipher of each word, where a word of the first half of the vocabulary ("adjective")
before one of the second half ("noun") comes after it.
"""

from __future__ import annotations

import random
from pathlib import Path

_ONSETS, _RIMES = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t"], ["a", "e", "i", "o", "u"]


def words(count: int, ending: str) -> list[str]:
    """`count` different words of two syllables and a consonant."""
    syllables = [onset + rime for onset in _ONSETS for rime in _RIMES]
    return [syllables[i % 60] + syllables[(7 * i + i // 60) % 60] + ending for i in range(count)]


def sentences(count: int, seed: int, vocabulary: int = 60) -> tuple[list[str], list[str]]:
    """(sources, targets)."""
    source_words, target_words = words(vocabulary, "s"), words(vocabulary, "n")
    draw = random.Random(seed)
    sources, targets = [], []
    for _ in range(count):
        picked = [draw.randrange(vocabulary) for _ in range(draw.randint(3, 8))]
        sources.append(" ".join(source_words[i] for i in picked))
        targets.append(" ".join(target_words[i] for i in reordered(picked, vocabulary)))
    return sources, targets


def reordered(picked: list[int], vocabulary: int) -> list[int]:
    """Each adjective directly before a noun changes places with it, from left to right."""
    out, i = list(picked), 0
    while i + 1 < len(out):
        if out[i] < vocabulary // 2 <= out[i + 1]:
            out[i], out[i + 1] = out[i + 1], out[i]
            i += 1
        i += 1
    return out


def write(folder: Path, count: int, seed: int, name: str = "train") -> tuple[Path, Path]:
    """Two line-aligned files."""
    paths = folder / f"{name}.src", folder / f"{name}.tgt"
    for path, lines in zip(paths, sentences(count, seed), strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths
