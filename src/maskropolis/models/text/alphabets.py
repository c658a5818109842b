"""Alphabets other than prose: how text becomes tokens and tokens are shown, one codec a format.

    text      as the tokenizer splits and joins it
    fasta     one letter a token, whatever the tokenizer makes of words; small letters read as capitals; no spaces
    smiles    as the tokenizer splits it; no spaces
    tokens    entries of the vocabulary between spaces, e.g. `un ##happy`

`fasta` serves models whose tokenizer splits letters (ESM) and those that want letters between spaces (ProtBERT and
antibody BERTs) alike. In all but `text` a symbol that the model does not know is an error, never an unknown token.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from maskropolis.errors import InputError, ModelError, unknown_name
from maskropolis.models.text.codec import LITERAL_MASK, TextCodec, require_text, shorten
from maskropolis.sequences import Sequences


class EntryCodec(TextCodec):
    """Text whose symbols are entries of the vocabulary: letters (`fasta`), or what stands between spaces (`tokens`).

    Special tokens may be written in the text, e.g. the `[SEP]` between two chains of an antibody; they are not free.
    Raises `ModelError` for `fasta` if the vocabulary has no single letters.
    """

    def __init__(self, tokenizer: Any, max_length: int | None = None, format: str = "fasta") -> None:
        super().__init__(tokenizer, max_length)
        self.format, self.joint = format, "" if format == "fasta" else " "
        if format == "fasta" and not self.letters:
            raise ModelError(
                f"the vocabulary of '{tokenizer.name_or_path}' has no single letters, which --format fasta needs; "
                "use --format tokens for words of several letters"
            )

    @cached_property
    def letters(self) -> str:
        """The single letters of the vocabulary, in alphabetical order."""
        return "".join(sorted(entry for entry in self.entries if _is_letter(entry)))

    @cached_property
    def _symbol(self) -> re.Pattern[str]:
        special = sorted({*self.tokenizer.all_special_tokens, LITERAL_MASK}, key=len, reverse=True)
        other = r"\S" if self.format == "fasta" else r"\S+"
        return re.compile("|".join([*map(re.escape, special), other]))

    def entry(self, symbol: str) -> int | None:
        found = super().entry(self.tokenizer.mask_token if symbol == LITERAL_MASK else symbol)
        return super().entry(symbol.upper()) if found is None and self.format == "fasta" else found

    def ids(self, text: str, where: str = "text") -> list[int]:
        """Token ids of one sequence, special tokens included. Raises `InputError` naming the first unknown symbol."""
        require_text(text, where)
        found = []
        for number, match in enumerate(self._symbol.finditer(text), start=1):
            index = self.entry(match[0])
            if index is None:
                raise InputError(self._unknown_symbol(match[0], number, where))
            found.append(index)
        before, after = self.frame
        ids = [*before, *found, *after]
        self.require_fits(len(ids), where, text)
        return ids

    def _unknown_symbol(self, symbol: str, number: int, where: str) -> str:
        if self.format == "fasta":
            return f"{where} has the letter '{symbol}' at position {number}; the model knows {self.letters}"
        return (
            f"{where} has '{shorten(symbol)}' at position {number}; expected entries of the vocabulary between spaces"
        )

    def offsets(self, text: str) -> list[tuple[int, int]]:
        before, after = self.frame
        return [*[(0, 0)] * len(before), *(m.span() for m in self._symbol.finditer(text)), *[(0, 0)] * len(after)]

    @property
    def has_offsets(self) -> bool:
        return True

    @property
    def has_words(self) -> bool:
        return self.format != "tokens"

    def words(self, text: str) -> list[int | None]:
        """Each letter is a word. Raises `InputError` for `tokens`, whose entries may be parts of words."""
        if self.format == "tokens":
            raise InputError("entries of the vocabulary do not say which of them form a word; use --format text")
        before, after = self.frame
        count = len(self._symbol.findall(text))
        return [*[None] * len(before), *range(count), *[None] * len(after)]

    def spelling(self, word: str) -> tuple[int, ...]:
        found = [self.entry(symbol) for symbol in self._symbol.findall(word)]
        return tuple(index for index in found if index is not None) if None not in found else ()

    def allowed(self, vocabulary_size: int) -> Tensor:
        """[V] bool; for `fasta` letters only, so that a sampler writes no gap or other sign."""
        allowed = super().allowed(vocabulary_size)
        if self.format == "fasta":
            letters = torch.zeros_like(allowed)
            letters[[self.entries[letter] for letter in self.letters if self.entries[letter] < vocabulary_size]] = True
            allowed &= letters
        return allowed

    def decode(self, sequences: Sequences) -> list[str]:
        before, after = self.frame
        texts = []
        for row, length in zip(sequences.tokens.tolist(), sequences.lengths.tolist(), strict=True):
            ids = row[:length]
            ids = ids[len(before) :] if before and ids[: len(before)] == before else ids
            ids = ids[: -len(after)] if after and ids[-len(after) :] == after else ids
            texts.append(self.joint.join(self.pieces(ids)))
        return texts


class SmilesCodec(TextCodec):
    """Molecules and reactions: split by the model's tokenizer, shown without spaces."""

    format = "smiles"
    joint = ""

    def ids(self, text: str, where: str = "text") -> list[int]:
        """Token ids of one SMILES, special tokens included. Raises `InputError` naming the first unknown token."""
        require_text(text, where)
        ids = super().ids("".join(text.split()), where)
        if self.unknown is not None and self.unknown in ids:
            rank = ids.index(self.unknown)
            start, stop = self.offsets(text)[rank] if self.has_offsets else (0, 0)
            shown = f" '{shorten(text[start:stop])}'" if stop > start else ""
            raise InputError(
                f"{where} has a token{shown} at position {rank - len(self.frame[0]) + 1} that is not in the model's "
                f"vocabulary: {shorten(text)!r}"
            )
        return ids

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """In the text as given, white space included."""
        places = [place for place, character in enumerate(text) if not character.isspace()]
        compact = super().offsets("".join(text.split()))
        return [(places[start], places[stop - 1] + 1) if stop > start else (0, 0) for start, stop in compact]

    def decode(self, sequences: Sequences) -> list[str]:
        return ["".join(text.split()) for text in super().decode(sequences)]


FORMATS = ("text", "fasta", "smiles", "tokens")


def codec_for(format: str, tokenizer: Any, max_length: int | None = None) -> TextCodec:
    """The codec of a format. Raises `InputError` for an unknown name, `ModelError` for an unfit vocabulary."""
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    if format == "text":
        return TextCodec(tokenizer, max_length)
    return SmilesCodec(tokenizer, max_length) if format == "smiles" else EntryCodec(tokenizer, max_length, format)


def _is_letter(entry: str) -> bool:
    return len(entry) == 1 and entry.isascii() and entry.isalpha()
