"""Masked diffusion run backwards: from masks to tokens, block after block, by a sampler that says what to do in a step.

A sampler is one small file beside this one: `diffusion_ancestral` (with ReMDM's remasking), `diffusion_first_hitting`
and `diffusion_confidence`. All of them decide as much as they can from the schedule alone, which needs no model, and
ask the model only for chains that write something in this step, at the positions where they write. So a step in which
nothing changes costs nothing, without any approximation.

Blocks: the masks are divided into runs of `block` masks, from left to right, and a block begins when the one before it
is complete; the later ones are visible as masks. Semi-autoregressive: Arriola et al. (2025); Nie et al. (2025), LLaDA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences

UNIFORMS = 3  # for each position, in each step: whether it changes, which token, which position

Source = Callable[[int], Tensor]
"""step -> uniforms [C, T, 3]."""

Observe = Callable[[int, int], None]
"""Is told, after every step, the steps made and how many there are."""


def unobserved(made: int, total: int) -> None:
    """Nobody watches."""


class Reverse(Protocol):
    """How to go from masks to tokens in a number of steps."""

    @property
    def name(self) -> str: ...

    def steps(self, masks: int) -> int:
        """Steps for a block whose widest chain has so many masks."""
        ...

    def step(
        self, model: MaskedLM, sequences: Sequences, block: Tensor, step: int, steps: int, uniforms: Tensor
    ) -> tuple[Sequences, int]:
        """Step `step` of `steps` within `block` [C, T] bool (all its positions, written or not); `uniforms` [C, T, 3].
        Returns the new sequences and the model rows that it cost. After the last step no mask is left."""
        ...

    def signature(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Diffused:
    """What diffusion wrote.

    Attributes:
        sequences: no position that was to be written holds a mask.
        rows: model rows that it cost. steps: steps made. idle: shares of them, over chains, that needed no model.
    """

    sequences: Sequences
    rows: int
    steps: int

    @property
    def idle(self) -> float:
        """Share of the steps of all chains that needed no forward pass."""
        return 1.0 - self.rows / max(1, self.steps * len(self.sequences))


def diffuse(
    model: MaskedLM,
    sequences: Sequences,
    reverse: Reverse,
    source: Source,
    block: int | None = None,
    observe: Observe = unobserved,
) -> Diffused:
    """Write tokens at every free position of `sequences` that holds the mask; all else is context and stays.

    `source` gives the uniforms of a step, counted over all blocks; `observe` is told of the steps. Raises
    `InputError` for an empty block.
    """
    if block is not None and block < 1:
        raise InputError(f"a block of {block} tokens is too small; expected at least 1")
    blank = sequences.free & (sequences.tokens == model.mask_token)
    parts = [(part, reverse.steps(int(part.sum(1).max()))) for part in blocks(blank, block)]
    made, rows, total = 0, 0, sum(steps for _, steps in parts)
    for part, steps in parts:
        for step in range(steps):
            sequences, used = reverse.step(model, sequences, part, step, steps, source(made))
            made, rows = made + 1, rows + used
            observe(made, total)
    return Diffused(sequences, rows, made)


def blocks(blank: Tensor, size: int | None) -> Iterator[Tensor]:
    """The True positions of `blank` [C, T] divided into runs of `size` (all at once for None), left to right."""
    rank = blank.long().cumsum(1) - 1
    most = int(blank.sum(1).max()) if blank.numel() else 0
    size = most if size is None else size
    for first in range(0, most, max(1, size)):
        yield blank & (rank >= first) & (rank < first + size)


def stream_source(streams: Streams, width: int, device: torch.device) -> Source:
    """Uniforms of each chain's own stream, whatever the width of the batch."""
    return lambda step: streams.wide(step, UNIFORMS * width, device).view(-1, width, UNIFORMS)


def matrix_source(uniforms: Tensor, width: int) -> Source:
    """Uniforms that are all there beforehand, [C, steps · T · 3]: how a sampler is enumerated."""
    size = UNIFORMS * width
    return lambda step: uniforms[:, step * size : (step + 1) * size].reshape(-1, width, UNIFORMS)
