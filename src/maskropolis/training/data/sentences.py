"""Where a paragraph may be cut into sentences: a rule of thumb for English prose, good enough to train on."""

from __future__ import annotations

import re
from typing import NamedTuple

_END = re.compile(r"[.!?…]+[”’\"')]*\s+(?=[“‘\"'(]?[A-Z0-9])")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|Prof|Rev|Hon|Capt|Col|Gen|Lt|Sgt|No|Jr|Sr|Messrs|Mme|[A-Z])\.\s+$")


class Span(NamedTuple):
    """Characters `start` to `end` of a paragraph."""

    start: int
    end: int


def split_sentences(paragraph: str) -> list[Span]:
    """The sentences of a paragraph; they cover it but for the white space between them."""
    cuts = [0]
    for match in _END.finditer(paragraph):
        if not _ABBREVIATION.search(paragraph[cuts[-1] : match.end()]):
            cuts.append(match.end())
    ends = [*cuts[1:], len(paragraph)]
    return [
        Span(a, a + len(paragraph[a:b].rstrip())) for a, b in zip(cuts, ends, strict=True) if paragraph[a:b].strip()
    ]


def is_balanced(sentence: str) -> bool:
    """Whether double quotes open and close within the sentence, so that it can stand alone."""
    return sentence.count("“") == sentence.count("”") and sentence.count('"') % 2 == 0
