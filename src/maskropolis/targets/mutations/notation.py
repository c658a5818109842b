"""Mutants of a sequence: their notation, `A23V` or `A23V:K45R`, read and written against the sequence itself.

    A23V        position 23 (from 1) holds A, and V takes its place
    A23V:K45R   both at once

In alphabets other than letters the parts are entries of the vocabulary, e.g. `Cl4Br`, and spaces divide several, as `:`
may be such an entry. What the sequence holds decides between readings of `112C`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.text.codec import TextCodec
from maskropolis.targets.constraints.classes import token_set


@dataclass(frozen=True, order=True)
class Substitution:
    """The token `new` for `old` at `place`, counted among the free positions from 0."""

    place: int
    old: int
    new: int


@dataclass(frozen=True)
class Mutant:
    """Substitutions at different places, in order. Equal if they change the same."""

    name: str = field(compare=False)
    substitutions: tuple[Substitution, ...]


@dataclass(frozen=True, eq=False)
class Notation:
    """Mutants of one sequence.

    Attributes:
        tokens: [n] its free tokens. allowed: [V] bool, what may stand in a mutant. first: the number of the first.
        where: how an error names the sequence.
    """

    codec: TextCodec
    tokens: Sequence[int]
    allowed: Tensor
    first: int = 1
    where: str = "the sequence"

    def read(self, text: str) -> Mutant:
        """Raises `InputError` if it is malformed or does not fit the sequence."""
        parts = text.replace(":", " ").split() if self.codec.format == "fasta" else text.split()
        if not parts:
            raise InputError(f"an empty mutant for {self.where}; expected e.g. A23V")
        found = sorted(self._substitution(part) for part in parts)
        for before, after in pairwise(found):
            if before.place == after.place:
                raise InputError(f"the mutant {text} changes position {after.place + self.first} twice")
        return Mutant(text, tuple(found))

    def every(self, to: Tensor) -> Iterator[Mutant]:
        """All single substitutions by other tokens of `to` [V] bool, position by position."""
        ids = (to & self.allowed).nonzero()[:, 0].tolist()
        pieces = dict(zip(ids, self.codec.pieces(ids), strict=True))
        olds = self.codec.pieces(self.tokens)
        order = sorted(ids, key=lambda index: pieces[index])
        for place, (old, shown) in enumerate(zip(self.tokens, olds, strict=True)):
            for new in order:
                if new != old:
                    name = f"{shown}{place + self.first}{pieces[new]}"
                    yield Mutant(name, (Substitution(place, old, new),))

    def _substitution(self, part: str) -> Substitution:
        readings = [reading for reading in _splits(part) if None not in map(self.codec.entry, reading[::2])]
        if not readings:
            raise InputError(self._malformed(part))
        inside = [r for r in readings if self.first <= r[1] < self.first + len(self.tokens)]
        if not inside:
            last = self.first + len(self.tokens) - 1
            raise InputError(f"{part} does not fit {self.where}: its positions are {self.first} to {last}")
        fitting = [r for r in inside if self.tokens[r[1] - self.first] == self.codec.entry(r[0])]
        if not fitting:
            old, number, _ = inside[0]
            holds = self.codec.pieces([self.tokens[number - self.first]])[0]
            raise InputError(f"{part} does not fit {self.where}: position {number} is {holds}, not {old}")
        if len(fitting) > 1:
            raise InputError(f"{part} can be read in several ways on {self.where}; expected an unambiguous mutant")
        old, number, new = fitting[0]
        index = self.codec.entry(new)
        if index is None or not bool(self.allowed[index]):
            raise InputError(f"{part} puts '{new}' into {self.where}, which is not a token that a sequence may hold")
        return Substitution(number - self.first, self.tokens[number - self.first], index)

    def _malformed(self, part: str) -> str:
        for old, _, new in _splits(part):
            for symbol in (old, new):
                if len(symbol) == 1 and symbol.isalpha() and self.codec.entry(symbol) is None:
                    return f"the '{symbol}' of {part} is not in the model's alphabet"
        return (
            f"'{part}' is not a mutation; expected what the sequence holds, the position from {self.first}, and what "
            "replaces it, e.g. A23V, or A23V:K45R for two at once"
        )


def _splits(part: str) -> list[tuple[str, int, str]]:
    """All readings as (old, number, new)."""
    inner = range(1, len(part) - 1)
    digits = ((i, j) for i in inner for j in range(i + 1, len(part)) if re.fullmatch("[0-9]+", part[i:j]))
    return [(part[:i], int(part[i:j]), part[j:]) for i, j in digits]


def substitutes(codec: TextCodec, allowed: Tensor, to: str | None = None) -> Tensor:
    """[V] bool, the tokens of a set as in `maskropolis.targets.constraints.classes`.

    By default the amino acids where letters are tokens and all twenty are known, else every allowed token.
    """
    if to is not None:
        return token_set(to, codec, allowed).tokens & allowed
    if codec.format == "fasta":
        amino = torch.zeros_like(allowed)
        known = [index for letter in _AMINO if (index := codec.entry(letter)) is not None]
        amino[known] = True
        if len(known) == len(_AMINO):
            return amino & allowed
    return allowed


_AMINO = "ACDEFGHIKLMNPQRSTVWY"
