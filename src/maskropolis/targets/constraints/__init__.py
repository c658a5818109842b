"""Hard constraints: the support S of the target, π(x) ∝ exp(−E(x)/τ) · 1[x ∈ S].

A constraint answers two questions: does it hold, and which tokens may stand at one position given all others. The
second cuts down proposals, so that single-site moves never leave S; a move of several positions that would is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from maskropolis.sequences import Sequences


class Constraint(Protocol):
    """One condition on sequences.

    Attributes:
        name: how a message calls it.
        alone: whether it looks at each position by itself.
        of_text: whether `holds` needs the texts.
    """

    alone: ClassVar[bool]

    @property
    def name(self) -> str: ...

    @property
    def of_text(self) -> bool: ...

    def allowed(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """[C, V] bool: tokens at `positions` [C] with which it holds, all other tokens as they are.

        The token that stands at the position now must not matter. Where `holds` looks at the text as well, more tokens
        than those with which it holds may be given.
        """
        ...

    def holds(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        """[C] bool."""
        ...


@dataclass(frozen=True)
class Constraints:
    """All constraints of a target."""

    parts: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def names(self) -> list[str]:
        return [part.name for part in self.parts]

    @property
    def of_text(self) -> bool:
        return any(part.of_text for part in self.parts)

    def hold(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        """[C] bool, whether all of them hold."""
        good = torch.ones(len(sequences), dtype=torch.bool, device=sequences.device)
        for part in self.parts:
            good &= part.holds(sequences, texts)
        return good

    def allowed(self, writable: Tensor, sequences: Sequences, positions: Tensor, alone: bool = False) -> Tensor:
        """[C, V] bool: tokens of `writable` [V] that may stand at `positions` [C], see `Constraint.allowed`."""
        good = writable.expand(len(sequences), -1)
        for part in self.parts:
            if part.alone or not alone:
                good = good & part.allowed(sequences, positions)
        return good
