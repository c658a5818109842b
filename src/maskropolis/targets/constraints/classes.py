"""Per-position sets of tokens: letters only, amino acids only, a user's list.

    letters        every character of the token is a letter
    words          letters, and the token begins a word
    lowercase      letters without capitals
    digits         every character is a digit
    amino          one of the 20 letters of amino acids
    nucleotides    one of A C G T U N
    =a,b,c         the tokens a, b and c
    @FILE          the tokens in a file, one a line

`3:letters` and `2-5:letters` hold for the third, or the second to fifth, free position; else for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError, unknown_name
from maskropolis.models.text.codec import TextCodec
from maskropolis.sequences import Sequences
from maskropolis.targets.constraints.words import continuing

_AMINO, _NUCLEOTIDES = frozenset("ACDEFGHIKLMNPQRSTVWY"), frozenset("ACGTUN")
CLASSES: dict[str, Callable[[str], bool]] = {
    "letters": str.isalpha,
    "words": str.isalpha,
    "lowercase": lambda piece: piece.isalpha() and piece == piece.lower(),
    "digits": str.isdigit,
    "amino": lambda piece: piece in _AMINO,
    "nucleotides": lambda piece: piece in _NUCLEOTIDES,
}


@dataclass(frozen=True, eq=False)
class TokenSet:
    """Free positions number `first` to `last` (from 1; None for no limit) hold tokens of `tokens` [V] bool."""

    alone: ClassVar[bool] = True
    of_text: ClassVar[bool] = False
    name: str
    tokens: Tensor = field(repr=False)
    first: int = 1
    last: int | None = None

    def _concerned(self, sequences: Sequences) -> Tensor:
        """[C, T] bool."""
        rank = sequences.free.long().cumsum(1)
        upper = rank.new_tensor(sequences.width if self.last is None else self.last)
        return sequences.free & (rank >= self.first) & (rank <= upper)

    def allowed(self, sequences: Sequences, positions: Tensor) -> Tensor:
        concerned = self._concerned(sequences).gather(1, positions[:, None])
        return self.tokens | ~concerned

    def holds(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        return (self.tokens[sequences.tokens] | ~self._concerned(sequences)).all(1)


def token_set(text: str, codec: TextCodec, allowed: Tensor) -> TokenSet:
    """The constraint that `text` names. Raises `InputError` for an unknown class or a set without a token."""
    match = re.fullmatch(r"(?:(\d+)(?:-(\d+))?:)?(.+)", text, re.DOTALL)
    if match is None:
        raise InputError("a set of tokens is empty; expected e.g. letters, 2-5:amino or =a,b,c")
    first = int(match[1] or 1)
    last = int(match[2] or first) if match[1] else None
    if first < 1 or (last is not None and last < first):
        raise InputError(f"the positions of '{text}' are out of range; expected e.g. 2-5, counted from 1")
    tokens = _members(match[3], codec, allowed)
    if not bool(tokens.any()):
        raise InputError(f"no token of the model's vocabulary is in the set '{match[3]}'; expected another")
    return TokenSet(f"allow:{text}", tokens, first, last)


def _members(text: str, codec: TextCodec, allowed: Tensor) -> Tensor:
    if text.startswith(("=", "@")):
        names = text[1:].split(",") if text[0] == "=" else _lines(text[1:])
        return _listed([name.strip() for name in names if name.strip()], codec, allowed)
    if text not in CLASSES:
        raise unknown_name("set of tokens", text, CLASSES)
    member = CLASSES[text]
    found = torch.zeros_like(allowed)
    for piece, index in codec.tokenizer.get_vocab().items():
        if index < len(allowed) and member(re.sub(r"^(##|Ġ|▁)", "", piece)):
            found[index] = True
    if text == "words":
        found &= ~continuing(codec, len(allowed)).to(found.device)
    return found & allowed


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the tokens in '{file}': {error}") from None


def _listed(names: list[str], codec: TextCodec, allowed: Tensor) -> Tensor:
    """Each name is an entry of the vocabulary, or text that the tokenizer makes one token of."""
    vocabulary, found = codec.tokenizer.get_vocab(), torch.zeros_like(allowed)
    for name in names:
        ids = codec.tokenizer(f" {name}", add_special_tokens=False)["input_ids"]
        index = vocabulary.get(name, ids[0] if len(ids) == 1 else -1)
        if index < 0 or not bool(allowed[index]):
            raise InputError(f"{name!r} is not one token that the model can write; name entries of its vocabulary")
        found[index] = True
    return found
