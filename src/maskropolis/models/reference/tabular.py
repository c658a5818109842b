"""A masked LM given by explicit tables, small enough to enumerate: the ground truth of every exactness test."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from maskropolis.models.forward.differentiable import Term
from maskropolis.models.protocol import Budget
from maskropolis.sequences import Sequences

_HUGE = 1e6  # nats


class TabularMaskedLM:
    """Logits looked up by the whole context.

    Tokens are 0 … V−2, the mask token is V−1. `tables[length]` is [length, V**length, V]: logits at a position given
    the context, a number in base V whose digits are the tokens of the row (masks included, first token most
    significant).
    """

    padding_safe = True
    max_length: int | None

    def __init__(self, tables: dict[int, Tensor], vocabulary_size: int, name: str = "tabular") -> None:
        for length, table in tables.items():
            expected = (length, vocabulary_size**length, vocabulary_size)
            if tuple(table.shape) != expected:
                raise ValueError(f"table of length {length} must have shape {expected}; got {tuple(table.shape)}")
        self.tables = {length: table.double() for length, table in tables.items()}
        self.name = name
        self.vocabulary_size = vocabulary_size
        self.mask_token = vocabulary_size - 1
        self.allowed = torch.arange(vocabulary_size) != self.mask_token
        self.max_length = max(tables)
        self.budget = Budget()

    @classmethod
    def random(cls, tokens: int, lengths: list[int], seed: int, spread: float = 1.0) -> TabularMaskedLM:
        """Independent normal logits: conditionals of no joint distribution. `tokens` counts the real tokens."""
        generator = torch.Generator().manual_seed(seed)
        size = tokens + 1
        tables = {n: spread * torch.randn(n, size**n, size, generator=generator, dtype=torch.float64) for n in lengths}
        return cls(tables, size, name=f"tabular-random-{seed}")

    @classmethod
    def from_joint(cls, joint: Tensor) -> TabularMaskedLM:
        """The exact any-order conditionals of `joint`, a distribution over tokens with one axis a position."""
        length, tokens = joint.dim(), joint.shape[0]
        size = tokens + 1
        table = torch.full((length, size**length, size), -torch.inf, dtype=torch.float64)
        weights = joint.double() / joint.double().sum()
        for context in range(size**length):
            digits = [context // size ** (length - 1 - t) % size for t in range(length)]
            for t in range(length):
                seen = weights
                for other in reversed(range(length)):
                    if other == t:
                        continue
                    visible = digits[other] != tokens
                    seen = seen.select(other, digits[other]) if visible else seen.sum(other)
                table[t, context, :tokens] = seen.log() if seen.sum() > 0 else 0.0
        return cls({length: table}, size, name="tabular-joint")

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def logits(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """[N, K, V] float64."""
        return self._looked_up(sequences, positions)

    @property
    def input_vectors(self) -> Tensor:
        """The one-hots themselves [V, V]."""
        return torch.eye(self.vocabulary_size, dtype=torch.float64)

    def logits_and_slopes(
        self, sequences: Sequences, positions: Tensor, tokens: Tensor, term: Term
    ) -> tuple[Tensor, Tensor]:
        """Logits [N, V] and slopes [N, T, V] of the multilinear extension of the term in the one-hots.

        Its derivative with respect to token w at s is the term of the row that reads w at s, as it stands in the table;
        so first-order differences along one position are exact. Infinite terms are cut to a large number.
        """
        rows, width, size = len(sequences), sequences.width, self.vocabulary_size
        each = torch.arange(rows).repeat_interleave(width * size)
        place = torch.arange(width).repeat_interleave(size).repeat(rows)
        token = torch.arange(size).repeat(rows * width)
        there = self._looked_up(sequences.rows(each).with_tokens(place, token), positions[each, None])[:, 0]
        slopes = torch.nan_to_num(term(there, tokens[each]), nan=_HUGE, posinf=_HUGE, neginf=-_HUGE)
        return self._looked_up(sequences, positions[:, None])[:, 0], slopes.view(rows, width, size)

    def _looked_up(self, sequences: Sequences, positions: Tensor) -> Tensor:
        out = torch.empty(*positions.shape, self.vocabulary_size, dtype=torch.float64)
        for length in sequences.lengths.unique().tolist():
            if length not in self.tables:
                raise ValueError(f"no table for sequences of {length} tokens; there are {sorted(self.tables)}")
            rows = (sequences.lengths == length).nonzero()[:, 0]
            powers = self.vocabulary_size ** torch.arange(length - 1, -1, -1)
            context = (sequences.tokens[rows, :length] * powers).sum(1)
            out[rows] = self.tables[length][positions[rows], context[:, None]]
        return out

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for length in sorted(self.tables):
            digest.update(self.tables[length].numpy().tobytes())
        return digest.hexdigest()
