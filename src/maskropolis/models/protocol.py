"""What a model must do to be scored and sampled: give the logits of masked positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from maskropolis.sequences import Sequences


@dataclass
class Budget:
    """How much may be held at once. It changes speed and memory, never a result.

    Attributes:
        tokens: token positions in one forward pass (rows x padded length).
        logits: logits that one forward pass may return (rows x asked positions x vocabulary).
        conditionals: bytes for masked conditionals that a chain keeps between steps.
    """

    tokens: int = 4096
    logits: int = 1 << 26
    conditionals: int = 1 << 30


@runtime_checkable
class MaskedLM(Protocol):
    """A masked language model. `logits` is the only computation; the attributes say how to use it.

    Attributes:
        name: what the user called it.
        mask_token: id of the mask token.
        vocabulary_size: V.
        allowed: [V] bool, tokens that a sampler may write.
        device: where its tensors live.
        max_length: most tokens in a row, special tokens included, or None.
        padding_safe: whether logits are independent of padding; if not, only rows of one length share a batch.
        budget: limits of one forward pass.
    """

    name: str
    mask_token: int
    max_length: int | None
    padding_safe: bool
    budget: Budget

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def allowed(self) -> Tensor: ...

    @property
    def device(self) -> torch.device: ...

    def logits(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """Logits [N, K, V] (float32 or float64) at `positions` [N, K] of N rows; masks are already in the tokens."""
        ...

    def fingerprint(self) -> str:
        """A hash of the weights: equal for equal models."""
        ...
