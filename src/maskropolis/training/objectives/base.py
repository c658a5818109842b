"""The interface of a training objective, and what it knows of the vocabulary."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from maskropolis.errors import InputError

_UNUSED = re.compile(r"\[unused\d+\]|<unused\d+>|madeupword\d+")


@dataclass(frozen=True)
class Vocabulary:
    """`mask`: the mask token. `special` [V] bool: tokens that are never chosen. `ordinary` [W]: all others."""

    mask: int
    special: np.ndarray
    ordinary: np.ndarray

    @classmethod
    def of(cls, tokenizer: Any, size: int) -> Vocabulary:
        """From a tokenizer and the number of rows of the model's output layer. Raises `InputError` without a mask."""
        if tokenizer.mask_token_id is None:
            raise InputError("the tokenizer has no mask token; a masked language model needs one")
        special = np.zeros(size, dtype=bool)
        special[[i for i in tokenizer.all_special_ids if i < size]] = True
        usable = ~special
        usable[len(tokenizer) :] = False
        for token, i in tokenizer.get_vocab().items():
            if i < size and _UNUSED.fullmatch(token):
                usable[i] = False
        return cls(int(tokenizer.mask_token_id), special, np.flatnonzero(usable))

    def eligible(self, tokens: np.ndarray) -> np.ndarray:
        """Where a token may be chosen: everywhere but at special tokens and padding, [N, T] bool."""
        return ~self.special[tokens]


@dataclass(frozen=True)
class Corrupted:
    """`tokens` [N, T]: what the model sees. `chosen` [N, T] bool: where it must say what stood there.

    The loss is the sum over chosen positions of weight · cross-entropy, divided by `normaliser`; `weights` [N, T]
    None means 1 everywhere. `impossible`: a token that is never predicted, its probability 0. `sigmas` [N, T] float32,
    if not None: noise on the embeddings, 0 where a token is visible and infinite where it is masked; `keys` [N] of the
    noise.
    """

    tokens: np.ndarray
    chosen: np.ndarray
    normaliser: float
    weights: np.ndarray | None = None
    impossible: int | None = None
    sigmas: np.ndarray | None = None
    keys: np.ndarray | None = None

    def rows(self, which: slice) -> Corrupted:
        """Some of the rows, still divided by the normaliser of them all: the losses of the parts add up to the loss."""
        weights, sigmas, keys = (None if a is None else a[which] for a in (self.weights, self.sigmas, self.keys))
        tokens, chosen = self.tokens[which], self.chosen[which]
        return Corrupted(tokens, chosen, self.normaliser, weights, self.impossible, sigmas, keys)


class Objective(Protocol):
    """Corrupts a batch. Pure: the generator is the only source of randomness."""

    def corrupt(
        self, tokens: np.ndarray, starts: np.ndarray, vocabulary: Vocabulary, random: np.random.Generator
    ) -> Corrupted:
        """`tokens` [N, T] int64; `starts` [N, T] bool: where words begin."""
        ...


def check_rate(rate: float, name: str = "mask rate") -> float:
    """`rate` if it is in (0, 1]. Raises `InputError`."""
    if not 0 < rate <= 1:
        raise InputError(f"the {name} is {rate:g}; expected a number above 0 and at most 1")
    return rate
