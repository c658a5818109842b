"""Words that must be in a text, or must not be.

A word stands at i when one of its spellings, a sequence of tokens s of length L, has x_{i+k} = s_k for all k, and
x_{i+L} does not continue a word. Given x_∖t, the tokens w at t that complete a word are: all, if it stands somewhere
that t does not touch; w = s_{t−i}, where all else of a spelling is in place; any that does not continue, where t = i+L.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.text.codec import TextCodec
from maskropolis.sequences import Sequences
from maskropolis.targets.experts.counting import whole_word


@dataclass(frozen=True, eq=False)
class Word:
    """`required`: it must stand somewhere; else nowhere.

    Attributes:
        spellings: sequences of token ids that read as the word.
        continues: [V] bool, tokens that continue the word before them, e.g. `##ing`.
        in_text: whether a forbidden word is looked for in the decoded text too, whatever tokens spell it.
    """

    alone: ClassVar[bool] = False
    word: str
    required: bool
    spellings: tuple[tuple[int, ...], ...]
    continues: Tensor = field(repr=False)
    in_text: bool = False

    @property
    def name(self) -> str:
        return f"{'require' if self.required else 'forbid'}:{self.word}"

    @property
    def of_text(self) -> bool:
        return self.in_text and not self.required

    def allowed(self, sequences: Sequences, positions: Tensor) -> Tensor:
        completes = self._completes(sequences, positions)
        return completes if self.required else ~completes

    def holds(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        there = self.standing(sequences).any(1)
        if self.of_text:
            expression = whole_word(self.word)
            read = [expression.search(text) is not None for text in texts]
            there = there | torch.tensor(read, dtype=torch.bool, device=there.device)
        return there if self.required else ~there

    def standing(self, sequences: Sequences) -> Tensor:
        """[C, T] bool, where the word begins."""
        nowhere = torch.full((len(sequences),), -1, dtype=torch.long, device=sequences.device)
        found = torch.zeros_like(sequences.attention)
        for spelling in self.spellings:
            if len(spelling) <= sequences.width:
                start = self._matches(sequences, spelling, nowhere)
                found[:, : start.shape[1]] |= start
        return found

    def _completes(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """[C, V] bool, tokens at `positions` [C] with which the word stands somewhere."""
        size = len(self.continues)
        found = torch.zeros(len(sequences), size, dtype=torch.bool, device=sequences.device)
        for spelling in self.spellings:
            long = len(spelling)
            if long > sequences.width:
                continue
            start = self._matches(sequences, spelling, positions)
            place = positions[:, None] - torch.arange(start.shape[1], device=start.device)  # t − i
            outside = (place < 0) | (place > long)
            found |= (start & outside).any(1)[:, None]
            found |= (start & (place == long)).any(1)[:, None] & ~self.continues
            for k, token in enumerate(spelling):
                found[:, token] |= (start & (place == k)).any(1)
        return found

    def _matches(self, sequences: Sequences, spelling: Sequence[int], positions: Tensor) -> Tensor:
        """[C, T−L+1] bool: where `spelling` stands, the tokens at `positions` [C] taken for whatever they should be."""
        tokens, there = sequences.tokens, sequences.attention
        long, width = len(spelling), sequences.width
        wild = torch.arange(width, device=tokens.device) == positions[:, None]
        start = torch.ones(len(tokens), width - long + 1, dtype=torch.bool, device=tokens.device)
        for k, token in enumerate(spelling):
            stop = k + start.shape[1]
            start &= ((tokens[:, k:stop] == token) | wild[:, k:stop]) & there[:, k:stop]
        goes_on = self.continues[tokens] & there & ~wild
        start[:, : width - long] &= ~goes_on[:, long:]
        return start


def word_constraint(word: str, required: bool, codec: TextCodec, allowed: Tensor) -> Word:
    """The constraint for `word` as the tokenizer spells it, in its own, lower and capital letters.

    Raises `InputError` for a word that the vocabulary cannot spell (only if it is required), or none.
    """
    if not word.strip():
        raise InputError("a word is empty; expected --require WORD or --forbid WORD")
    continues = continuing(codec, len(allowed)).to(allowed.device)
    spellings = [s for s in _spellings(word.strip(), codec) if bool(allowed[list(s)].all())]
    if required and not spellings:
        raise InputError(f"the word '{word}' cannot be written with the model's vocabulary; expected another")
    return Word(word.strip(), required, tuple(spellings), continues, in_text=bool(continues.any()))


def _spellings(word: str, codec: TextCodec) -> Iterable[tuple[int, ...]]:
    variants = dict.fromkeys((word, word.lower(), word.capitalize(), word.upper()))
    found = [codec.spelling(variant) for variant in variants]
    return dict.fromkeys(spelling for spelling in found if spelling)


def continuing(codec: TextCodec, vocabulary_size: int) -> Tensor:
    """[V] bool: tokens that continue the word before them. None, where the alphabet knows no words."""
    pieces = {index: piece for piece, index in codec.tokenizer.get_vocab().items() if index < vocabulary_size}
    plain = {i: piece for i, piece in pieces.items() if i not in codec.special}
    found = torch.zeros(vocabulary_size, dtype=torch.bool)
    opening = [mark for mark in ("Ġ", "▁") if any(piece.startswith(mark) for piece in plain.values())]
    for index, piece in plain.items():
        if opening:
            found[index] = piece[:1] not in opening and piece[:1].isalnum()
        else:
            found[index] = piece.startswith("##") and piece[2:3].isalnum()
    return found
