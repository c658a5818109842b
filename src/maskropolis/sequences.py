"""The data that flows: token sequences of several chains, and which of their positions may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Sequences:
    """C padded token sequences of at most T positions. Nothing mutates one in place; operations return new ones.

    Attributes:
        tokens: [C, T] int64 token ids; padding (at the right) holds any valid id.
        free: [C, T] bool, the positions F that a sampler may change and an energy sums over. Special tokens, padding
            and given context are not free.
        attention: [C, T] bool, True at real tokens, False at padding.
        source: [C] int64 or None, the source sentence that a row is conditioned on.
    """

    tokens: Tensor
    free: Tensor
    attention: Tensor
    source: Tensor | None = None

    def __post_init__(self) -> None:
        shape = self.tokens.shape
        if self.tokens.dim() != 2 or self.free.shape != shape or self.attention.shape != shape:
            raise ValueError(
                f"tokens, free and attention must share one shape [C, T]; got {tuple(shape)}, "
                f"{tuple(self.free.shape)}, {tuple(self.attention.shape)}"
            )
        if self.source is not None and self.source.shape != shape[:1]:
            raise ValueError(f"source must be [C] = [{shape[0]}]; got {tuple(self.source.shape)}")

    @classmethod
    def from_lists(cls, tokens: Sequence[Sequence[int]], free: Sequence[Sequence[bool]], padding: int = 0) -> Sequences:
        """Pad rows of different lengths at the right with the id `padding`."""
        longest = max((len(row) for row in tokens), default=0)
        ids = torch.full((len(tokens), longest), padding, dtype=torch.long)
        may = torch.zeros_like(ids, dtype=torch.bool)
        attended = torch.zeros_like(may)
        for index, (row, row_free) in enumerate(zip(tokens, free, strict=True)):
            ids[index, : len(row)] = torch.as_tensor(row, dtype=torch.long)
            may[index, : len(row)] = torch.as_tensor(row_free, dtype=torch.bool)
            attended[index, : len(row)] = True
        return cls(ids, may, attended)

    def __len__(self) -> int:
        """Number of chains C."""
        return self.tokens.shape[0]

    @property
    def width(self) -> int:
        """Padded length T."""
        return self.tokens.shape[1]

    @property
    def device(self) -> torch.device:
        return self.tokens.device

    @property
    def lengths(self) -> Tensor:
        """[C] int64, real tokens in each row, special tokens included."""
        return self.attention.sum(1)

    @property
    def free_counts(self) -> Tensor:
        """[C] int64, n = |F| of each row."""
        return self.free.sum(1)

    def rows(self, index: Tensor) -> Sequences:
        """The chains selected by `index` ([K] int64 or [C] bool), same width."""
        source = None if self.source is None else self.source[index]
        return Sequences(self.tokens[index], self.free[index], self.attention[index], source)

    def tokens_at(self, positions: Tensor) -> Tensor:
        """The tokens at `positions` [C] or [C, K], in the same shape."""
        if positions.dim() == 1:
            return self.tokens.gather(1, positions[:, None])[:, 0]
        return self.tokens.gather(1, positions)

    def with_tokens(self, positions: Tensor, tokens: Tensor) -> Sequences:
        """A copy that holds `tokens` at `positions`, both [C] or both [C, K]."""
        if positions.dim() == 1:
            positions, tokens = positions[:, None], tokens[:, None]
        return replace(self, tokens=self.tokens.scatter(1, positions, tokens))

    def masked(self, positions: Tensor, mask_token: int) -> Sequences:
        """A copy that holds the mask token at `positions`, [C] or [C, K]."""
        return self.with_tokens(positions, torch.full_like(positions, mask_token))

    def changes(self, other: Sequences) -> Tensor:
        """[C] int64, how many tokens differ from `other`, row by row."""
        return torch.ne(self.tokens, other.tokens).sum(1)

    def trimmed(self) -> Sequences:
        """Without the columns at the right that are padding in every row."""
        width = int(self.lengths.max()) if len(self) else 0
        return Sequences(self.tokens[:, :width], self.free[:, :width], self.attention[:, :width], self.source)

    def to(self, device: torch.device | str) -> Sequences:
        source = None if self.source is None else self.source.to(device)
        return Sequences(self.tokens.to(device), self.free.to(device), self.attention.to(device), source)


def concatenate(parts: Sequence[Sequences], padding: int = 0) -> Sequences:
    """One `Sequences` with the rows of all `parts`, padded to the widest."""
    width = max(part.width for part in parts)

    def wide(tensor: Tensor, fill: int | bool) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, width - tensor.shape[1]), value=fill)

    sources = [part.source for part in parts]
    if any(s is None for s in sources) and any(s is not None for s in sources):
        raise ValueError("either all parts or no part must have a source")
    return Sequences(
        torch.cat([wide(part.tokens, padding) for part in parts]),
        torch.cat([wide(part.free, False) for part in parts]),
        torch.cat([wide(part.attention, False) for part in parts]),
        torch.cat([s for s in sources if s is not None]) if sources[0] is not None else None,
    )
