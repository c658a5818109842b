"""Sentences as tokens for a page: each with its masked conditional probability, or with what changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from maskropolis.convergence.histories import History
from maskropolis.errors import NumericalError
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM

MOST_SAMPLES = 60
MOST_STATES = 40


class Token(NamedTuple):
    """Text of one token, its leading space included. `probability` is None where nothing could change or be scored."""

    text: str
    probability: float | None = None
    changed: bool = False

    @property
    def space(self) -> str:
        """The leading space, which is not shaded."""
        return self.text[: len(self.text) - len(self.word)]

    @property
    def word(self) -> str:
        return self.text.lstrip()

    @property
    def strength(self) -> str:
        """How strongly to shade, 0 to 1: the square root spreads small probabilities apart."""
        return f"{math.sqrt(self.probability or 0.0):.2f}"


class Sentence(NamedTuple):
    """One kept state, or several equal ones."""

    energy: float
    tokens: tuple[Token, ...]
    chain: int
    step: int
    times: int = 1


def by_energy(history: History, model: HuggingFaceMaskedLM | None) -> list[Sentence]:
    """Different sentences, lowest energy first; at most 60, taken evenly if there are more."""
    seen: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for row in range(len(history.chains)):
        for draw in range(history.draws):
            seen.setdefault(tuple(history.tokens[row, draw].tolist()), []).append((row, draw))
    found = sorted(seen.items(), key=lambda item: history.energy[item[1][0]])
    found = [found[i] for i in evenly(len(found), MOST_SAMPLES)]
    probabilities = _probabilities(history, [ids for ids, _ in found], model)
    sentences = []
    for (ids, places), shares in zip(found, probabilities, strict=True):
        row, draw = places[0]
        pieces = texts_of(ids, history.texts[row][draw], model)
        tokens = tuple(Token(text, shares.get(index)) for index, text in pieces)
        energy = float(history.energy[row, draw])
        sentences.append(Sentence(energy, tokens, int(history.chains[row]), int(history.step[draw]), len(places)))
    return sentences


def over_time(history: History, row: int, model: HuggingFaceMaskedLM | None) -> list[Sentence]:
    """Kept states of one chain, at most 40 taken evenly; what differs from the one shown before is marked."""
    sentences = []
    before: dict[int, str] = {}
    for draw in evenly(history.draws, MOST_STATES):
        pieces = texts_of(tuple(history.tokens[row, draw].tolist()), history.texts[row][draw], model)
        tokens = tuple(Token(text, None, bool(before) and before.get(index) != text) for index, text in pieces)
        before = dict(pieces)
        energy = float(history.energy[row, draw])
        sentences.append(Sentence(energy, tokens, int(history.chains[row]), int(history.step[draw])))
    return sentences


def texts_of(ids: Sequence[int], text: str, model: HuggingFaceMaskedLM | None) -> list[tuple[int, str]]:
    """(position, text) of each token that is not special, such that the texts make up the sentence.

    Without a model the words of `text`, numbered in order: their positions are not those of tokens.
    """
    if model is None:
        return [(index, word if not index else f" {word}") for index, word in enumerate(text.split())]
    codec = model.codec
    shown: list[tuple[int, str]] = []
    kept: list[int] = []
    before = ""
    for index, token in enumerate(ids):
        if token in codec.special and token not in (codec.mask_token, codec.unknown):
            continue
        if codec.format != "text":
            shown.append((index, (codec.joint if shown else "") + codec.pieces([token])[0]))
            continue
        kept.append(token)
        now = str(codec.tokenizer.decode(kept, skip_special_tokens=False))
        piece = now[len(before) :] if now.startswith(before) else f" {codec.pieces([token])[0]}"
        shown.append((index, piece))
        before = now
    return shown


def evenly(count: int, most: int) -> list[int]:
    """At most `most` of 0 … count−1, the first and the last included."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist() if count else []


def _probabilities(
    history: History, rows: list[tuple[int, ...]], model: HuggingFaceMaskedLM | None
) -> list[dict[int, float]]:
    """p_t(x_t | x_∖t) by position of the free positions of each row: one scoring pass."""
    if model is None or not rows:
        return [{} for _ in rows]
    tokens = torch.tensor(rows, device=model.device)
    free = torch.zeros_like(tokens, dtype=torch.bool)
    free[:, torch.from_numpy(np.asarray(history.positions, dtype=np.int64)).to(model.device)] = True
    try:
        terms = NORM.evaluate(model, Sequences(tokens, free, torch.ones_like(free))).terms
    except NumericalError:
        return [{} for _ in rows]
    shares = (-terms).exp().tolist()
    return [{t: row[t] for t in history.positions.tolist()} for row in shares]
