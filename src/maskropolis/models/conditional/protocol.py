"""What translation needs of a model: p_t(y_t | y_∖t, x) for given sources x, as a masked LM that chains can use.

A `Conditional` turns text into token ids and back, and is *bound* to some sources. Bound, it is a `MaskedLM` whose rows
say by `Sequences.source` which source they belong to, so every energy, kernel and decoder works on it unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from maskropolis.models.protocol import Budget, MaskedLM
from maskropolis.sequences import Sequences


class Bound(MaskedLM, Protocol):
    """A conditional model bound to B sources.

    Attributes:
        decodable: [V] bool, tokens that a decoder may write at a mask: those allowed, and an end token if the model
            predicts one.
        longest: most target tokens in a row.
        end_counted: 1 if predicted lengths and `blank` count an end token, else 0.
    """

    longest: int
    end_counted: int

    @property
    def decodable(self) -> Tensor: ...

    def predicted_lengths(self, beam: int) -> list[list[int]]:
        """The `beam` likeliest target lengths of each source, likeliest first."""
        ...

    def length_scores(self, sources: Sequence[int], lengths: Sequence[int]) -> list[float]:
        """log p(N | x) of a target length for each (source, length); 0 where the model predicts none."""
        ...

    def blank(self, sources: Sequence[int], lengths: Sequence[int]) -> Sequences:
        """One row of masks for each (source, length), all of them free."""
        ...

    def rows(self, sources: Sequence[int], targets: Sequence[Sequence[int]]) -> Sequences:
        """Rows with given target tokens, which are free; what frames them is not."""
        ...

    def targets(self, sequences: Sequences) -> list[list[int]]:
        """The target tokens of each row, without what frames them."""
        ...


class Conditional(Protocol):
    """A model that can be bound to sources.

    Attributes:
        name: what the user called it.
        budget: limits of one forward pass, shared by all that is bound.
    """

    name: str
    budget: Budget

    @property
    def device(self) -> torch.device: ...

    def source_ids(self, text: str, where: str) -> list[int]:
        """Tokens of a source. Raises `InputError` if it is empty or longer than the model can read."""
        ...

    def target_ids(self, text: str, where: str) -> list[int]:
        """Tokens of a target. Raises `InputError` likewise."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """Target tokens as text."""
        ...

    def unknown(self, text: str) -> list[str]:
        """The parts of a text that the vocabulary does not know."""
        ...

    def bind(self, sources: Sequence[Sequence[int]]) -> Bound: ...

    def fingerprint(self) -> str: ...


def framed_rows(
    heads: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    tail: Sequence[int],
    sources: Sequence[int],
    padding: int,
) -> Sequences:
    """Rows head + target + tail, of which the target is free; `sources` [C] as `Sequences.source`."""
    tokens = [[*head, *target, *tail] for head, target in zip(heads, targets, strict=True)]
    free = [
        [False] * len(head) + [True] * len(target) + [False] * len(tail)
        for head, target in zip(heads, targets, strict=True)
    ]
    made = Sequences.from_lists(tokens, free, padding)
    return Sequences(made.tokens, made.free, made.attention, torch.tensor(list(sources), dtype=torch.long))


def free_tokens(sequences: Sequences, end: int | None = None) -> list[list[int]]:
    """The free tokens of each row, `end` tokens left out."""
    return [
        [token for token, is_free in zip(tokens, free, strict=True) if is_free and token != end]
        for tokens, free in zip(sequences.tokens.tolist(), sequences.free.tolist(), strict=True)
    ]
