"""The Mask-Predict objective: mask n target tokens, n uniform on 1 … N, and predict them and the length N.

Ghazvininejad et al. (2019), section 2.2. The loss is that of the authors' code: the smoothed cross-entropies of the
masked tokens and the cross-entropies of the lengths, summed, over the number of masked tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskropolis.training.parallel.batches import PairBatch


@dataclass(frozen=True)
class Tokens:
    """Special tokens, and which kind of end a target has (see `ConditionalConfig.end`)."""

    mask: int
    end: int
    padding: int
    end_kind: str


@dataclass(frozen=True)
class Masked:
    """What the decoder sees of a batch, and what it must say.

    Attributes:
        target: [N, T] with mask tokens, and an end token after each target if the model wants one.
        lengths: [N] tokens of a row, a fixed end token included. counted: [N] the lengths to predict.
        chosen: [N, T] bool, the masked positions.
    """

    target: np.ndarray
    lengths: np.ndarray
    counted: np.ndarray
    chosen: np.ndarray

    def rows(self, which: slice) -> Masked:
        return Masked(self.target[which], self.lengths[which], self.counted[which], self.chosen[which])


@dataclass(frozen=True)
class Copies:
    """Several maskings of the same batch, one after the other."""

    parts: list[Masked]

    @property
    def chosen(self) -> np.ndarray:
        return np.concatenate([part.chosen for part in self.parts])

    def rows(self, which: slice) -> Copies:
        return Copies([part.rows(which) for part in self.parts])


def framed(batch: PairBatch, end: str, end_token: int, padding: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(targets [N, T] with their end token unless `end` is `none`, row lengths [N], maskable positions [N])."""
    if end == "none":
        return batch.target, batch.target_lengths, batch.target_lengths
    target = np.pad(batch.target, [(0, 0), (0, 1)], constant_values=padding)
    target[np.arange(len(target)), batch.target_lengths] = end_token
    lengths = batch.target_lengths + 1
    return target, lengths, lengths if end == "predicted" else batch.target_lengths


def mask(batch: PairBatch, tokens: Tokens, random: np.random.Generator) -> Masked:
    """Choose n of N positions in every row, n and the positions uniform."""
    target, lengths, maskable = framed(batch, tokens.end_kind, tokens.end, tokens.padding)
    counts = random.integers(1, maskable + 1)
    keys = random.random(target.shape)
    keys[np.arange(target.shape[1])[None] >= maskable[:, None]] = 2.0
    ranks = keys.argsort(axis=1).argsort(axis=1)
    chosen = ranks < counts[:, None]
    return Masked(np.where(chosen, tokens.mask, target), lengths, maskable, chosen)
