"""Experts that look at the text alone: words, regular expressions, length.

keyword   E = 0 if the word is in the text, else 1       (case does not matter; whole words)
regex     E = 0 if the expression is found, else 1
length    E = |words in the text − wanted|
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.sequences import Sequences
from maskropolis.targets.experts import COUNTING


def whole_word(word: str) -> re.Pattern[str]:
    """An expression that finds `word` where no letter or digit touches it, in any case."""
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)


@dataclass(frozen=True)
class Pattern:
    """0 where `expression` is found in the text, 1 where it is not. With a negative weight, it is to be absent."""

    cost: ClassVar[int] = COUNTING
    bounded: ClassVar[bool] = True
    repels: ClassVar[bool] = True
    name: str
    expression: re.Pattern[str]

    def energy(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        absent = [self.expression.search(text) is None for text in texts]
        return torch.tensor(absent, dtype=torch.float64, device=sequences.device)


def keyword(word: str) -> Pattern:
    if not word.strip():
        raise InputError("the expert 'keyword' has no word; expected keyword:WORD:WEIGHT")
    return Pattern(f"keyword:{word}", whole_word(word.strip()))


def regex(expression: str) -> Pattern:
    try:
        return Pattern(f"regex:{expression}", re.compile(expression))
    except (re.error, RecursionError, OverflowError) as error:
        why = str(error) if isinstance(error, re.error) else "it is nested too deep, or counts too far"
        raise InputError(f"the regular expression {expression[:60]!r} is malformed: {why}") from None


@dataclass(frozen=True)
class Length:
    """Distance from the wanted number of words; words are what white space separates."""

    cost: ClassVar[int] = COUNTING
    bounded: ClassVar[bool] = True
    repels: ClassVar[bool] = False
    wanted: int

    @property
    def name(self) -> str:
        return f"length:{self.wanted}"

    def energy(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        distance = [abs(len(text.split()) - self.wanted) for text in texts]
        return torch.tensor(distance, dtype=torch.float64, device=sequences.device)
