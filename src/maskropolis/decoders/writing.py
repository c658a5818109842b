"""What a decoder writes at a masked position: the model's conditional on the allowed tokens, sharpened and cut.

    log w(v) = log softmax(f / τ)(v) on the allowed vocabulary, or on its nucleus: the smallest set of likeliest tokens
    that holds at least `top_p` of the mass

A draw inverts the CDF in float64. That is in law the same as taking the argmax of f/τ plus Gumbel noise in float64,
with one random number instead of V; in float32 the noise is cut off and the draw is biased (Zheng et al. 2024,
section 5). Nucleus: Holtzman et al. (2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.forward.rows import Rows, batches
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw
from maskropolis.sequences import Sequences
from maskropolis.targets.schedule import COLDEST, HOTTEST


@dataclass(frozen=True)
class Writing:
    """`temperature` τ ≥ 0, where 0 writes the likeliest token; `top_p` in (0, 1]. Raises `InputError`."""

    temperature: float = 1.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature != 0 and not COLDEST <= self.temperature <= HOTTEST:
            expected = f"0, or a number from {COLDEST:g} to {HOTTEST:g}"
            raise InputError(f"temperature {self.temperature!r} is out of range; expected {expected}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top-p {self.top_p!r} is out of range; expected a number above 0 and at most 1")

    def tokens(self, logits: Tensor, allowed: Tensor, uniforms: Tensor) -> Tensor:
        """[N] int64, a token for each row of `logits` [N, V]; `allowed` [V] bool, `uniforms` [N]."""
        scores = logits.double().masked_fill(~allowed, -torch.inf)
        if self.temperature == 0:
            return scores.argmax(-1)
        scores = scores / self.temperature
        return draw(nucleus(scores, self.top_p) if self.top_p < 1 else scores, uniforms)


def nucleus(log_weights: Tensor, top_p: float) -> Tensor:
    """A copy of `log_weights` [N, V] with −inf outside of each row's nucleus, which is never empty."""
    probabilities = log_weights.softmax(-1)
    ranked, order = probabilities.sort(dim=-1, descending=True, stable=True)
    outside = ranked.cumsum(-1) - ranked >= top_p
    return log_weights.masked_fill(outside.scatter(-1, order, outside), -torch.inf)


def rows_at(where: Tensor) -> tuple[Rows, Tensor]:
    """One row for each chain with a True in `where` [C, T], masked and asked at all of its True positions [N, K]; and
    which of them are not repeated to fill up [N, K]."""
    chain = where.any(1).nonzero()[:, 0]
    counts = where[chain].sum(1)
    most = int(counts.max()) if len(counts) else 0
    order = torch.argsort((~where[chain]).to(torch.uint8), dim=1, stable=True)[:, :most]
    used = torch.arange(most, device=order.device) < counts[:, None]
    positions = torch.where(used, order, order[:, :1])
    return Rows(chain, positions, positions), used


def write(
    model: MaskedLM, sequences: Sequences, where: Tensor, writing: Writing, uniforms: Tensor
) -> tuple[Sequences, int]:
    """A copy with tokens written at `where` [C, T] bool, where the mask token stands, each on its own given what is
    visible; and the model rows that it cost: none for a chain with nothing to write. `uniforms` [C, T]."""
    rows, used = rows_at(where)
    tokens = sequences.tokens.clone()
    for index, logits in batches(model, sequences, rows):
        real = used[index]
        chain = rows.chain[index, None].expand_as(real)[real]
        at = rows.asked[index][real]
        tokens[chain, at] = writing.tokens(logits[real], model.allowed, uniforms[chain, at])
    return with_all(sequences, tokens), len(rows)


def with_all(sequences: Sequences, tokens: Tensor) -> Sequences:
    """A copy that holds `tokens` [C, T]."""
    return Sequences(tokens, sequences.free, sequences.attention, sequences.source)
