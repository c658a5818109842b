"""Passages of four authors: single sentences of the length that the chains write, with whole books held out."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from maskropolis.errors import InputError
from maskropolis.training.data.sentences import is_balanced, split_sentences

AUTHORS = {
    "doyle": "arthur-conan-doyle_the-hound-of-the-baskervilles",
    "montgomery": "l-m-montgomery_anne-of-the-island",
    "piper": "h-beam-piper_little-fuzzy",
    "wodehouse": "p-g-wodehouse_leave-it-to-psmith",
}
"""Label -> the book held out; all other books of the author are trained on."""

SHORTEST, LONGEST = 8, 24
_STRAIGHT = str.maketrans("“”‘’", "\"\"''")
_ODD = re.compile(r"[^A-Za-z .,;:!?'’“”—-]")


class Passage(NamedTuple):
    text: str
    author: str


def training(books: Path, tokenizer: Any, each: int, seed: int) -> tuple[list[Passage], list[Passage]]:
    """Two disjoint sets of `each` passages an author: for the expert, and for the judge of it."""
    ours: list[Passage] = []
    theirs: list[Passage] = []
    for author, held_out in AUTHORS.items():
        files = [file for file in _files(books, held_out) if file.stem != held_out]
        found = [text for file in files for text in _sentences(file, tokenizer)]
        taken = _drawn(found, 2 * each, f"{seed} {author}")
        half = len(taken) // 2
        ours += [Passage(text, author) for text in taken[:half]]
        theirs += [Passage(text, author) for text in taken[half:]]
    return ours, theirs


def held_out(books: Path, tokenizer: Any, each: int, seed: int) -> list[Passage]:
    """`each` passages of every author, from the book that nothing here is trained on."""
    return [
        Passage(text, author)
        for author, book in AUTHORS.items()
        for text in _drawn(list(_sentences(books / f"{book}.txt", tokenizer)), each, f"{seed} {author} held out")
    ]


def _files(books: Path, one: str) -> list[Path]:
    """The books of the author who wrote `one`."""
    author = one.partition("_")[0]
    found = sorted(books.glob(f"{author}_*.txt"))
    if len(found) < 2:
        raise InputError(f"'{books}' holds {len(found)} books by {author}; expected at least 2, as in books.tar.xz")
    return found


def _sentences(file: Path, tokenizer: Any) -> Iterator[str]:
    """Whole sentences of plain words and marks with a suitable number of word pieces, each once."""
    seen: set[str] = set()
    for paragraph in file.read_text(encoding="utf-8").splitlines():
        for start, end in split_sentences(paragraph):
            text = paragraph[start:end]
            plain = text[:1].isupper() and text[-1:] in ".!?" and is_balanced(text) and not _ODD.search(text)
            if plain and text not in seen:
                seen.add(text)
                if SHORTEST <= len(tokenizer(text, add_special_tokens=False)["input_ids"]) <= LONGEST:
                    yield text.translate(_STRAIGHT)


def _drawn(texts: list[str], count: int, key: str) -> list[str]:
    return random.Random(key).sample(texts, min(count, len(texts)))
