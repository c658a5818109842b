"""Confidence-ordered unmasking: in each step the positions of which the model is surest are written.

    In step k of T every mask gets a candidate w_i ~ p_i and a score; those of highest score are written until
    ⌊n · (1 − α_s)⌋ masks are left, the others stay masked.
    maskgit          log p_i(w_i) + λ (1 − k/T) · Gumbel noise      Chang et al. (2022), MaskGIT
    low-confidence   p_i(w_i): all but the surest are masked again  Nie et al. (2025), LLaDA
    margin           p_i(first) − p_i(second)                       Kim et al. (2025), top-k margin
    entropy          Σ_w p_i(w) log p_i(w)                          Ye et al. (2025), Dream

λ is the choice temperature. The k highest of scores with Gumbel noise are in law k successive draws without replacement
in proportion to exp(score/λ′) (Yellott 1977); they are drawn so, in float64. The order follows what is written, so this
is no reverse process of a diffusion: the distribution of its samples is its own, sharper than the model's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from maskropolis.decoders.writing import Writing, rows_at, with_all
from maskropolis.errors import InputError, unknown_name
from maskropolis.models.forward.rows import batches
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw
from maskropolis.sequences import Sequences
from maskropolis.targets.diffusion.noise import noise_by_name

Score = Callable[[Tensor, Tensor], Tensor]
"""(log p [N, V], candidates [N]) -> [N] float64, the surer the higher."""


def _of_candidate(log_p: Tensor, token: Tensor) -> Tensor:
    return log_p.gather(-1, token[:, None])[:, 0]


def _margin(log_p: Tensor, token: Tensor) -> Tensor:
    best = log_p.exp().topk(min(2, log_p.shape[-1]), dim=-1).values
    return best[:, 0] - best[:, -1]


def _entropy(log_p: Tensor, token: Tensor) -> Tensor:
    return (log_p.exp() * log_p.clamp(min=-1e9)).sum(-1)


ORDERS: dict[str, Score] = {
    "maskgit": _of_candidate,
    "low-confidence": lambda log_p, token: _of_candidate(log_p, token).exp(),
    "margin": _margin,
    "entropy": _entropy,
}


@dataclass(frozen=True)
class Confidence:
    """`count` steps; `choice_temperature` λ ≥ 0 falls linearly to 0. Raises `InputError`."""

    order: str = "low-confidence"
    count: int = 32
    noise: str = "log-linear"
    writing: Writing = Writing()
    choice_temperature: float = 0.0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise unknown_name("order", self.order, ORDERS)
        if self.count < 1:
            raise InputError(f"{self.count} steps of diffusion are too few; expected at least 1")
        if not 0 <= self.choice_temperature < float("inf"):
            raise InputError(f"choice temperature {self.choice_temperature!r} is out of range; expected a number ≥ 0")
        noise_by_name(self.noise)

    @property
    def name(self) -> str:
        return self.order

    def steps(self, masks: int) -> int:
        return self.count

    def step(
        self, model: MaskedLM, sequences: Sequences, block: Tensor, step: int, steps: int, uniforms: Tensor
    ) -> tuple[Sequences, int]:
        """See `Reverse`. Uniforms: 1 of a position its candidate, 2 of the i-th which position is written i-th."""
        alpha = float(noise_by_name(self.noise).alphas(steps)[steps - step - 1])
        hidden = block & (sequences.tokens == model.mask_token)
        left = torch.floor(block.sum(1) * (1.0 - alpha) + 1e-9).long()
        number = (hidden.sum(1) - left).clamp(min=0)
        where = hidden & (number > 0)[:, None]
        candidates, score, rows = self._candidates(model, sequences, where, uniforms[..., 1])
        temperature = self.choice_temperature * (1.0 - (step + 1) / steps)
        chosen = surest(score, number, temperature, uniforms[..., 2])
        return with_all(sequences, torch.where(chosen, candidates, sequences.tokens)), rows

    def _candidates(
        self, model: MaskedLM, sequences: Sequences, where: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor, int]:
        """(tokens [C, T], scores [C, T] float64, −inf elsewhere, rows) at `where` [C, T] bool."""
        tokens = sequences.tokens.clone()
        score = torch.full(tokens.shape, -torch.inf, dtype=torch.float64, device=tokens.device)
        rows, used = rows_at(where)
        for index, logits in batches(model, sequences, rows):
            real = used[index]
            chain, at = rows.chain[index, None].expand_as(real)[real], rows.asked[index][real]
            token = self.writing.tokens(logits[real], model.allowed, uniforms[chain, at])
            log_p = logits[real].double().masked_fill(~model.allowed, -torch.inf).log_softmax(-1)
            tokens[chain, at], score[chain, at] = token, ORDERS[self.order](log_p, token)
        return tokens, score, len(rows)

    def signature(self) -> str:
        choice: Any = f",choice={self.choice_temperature:g}" if self.choice_temperature else ""
        return f"{self.order}({self.noise},steps={self.count}{choice})"


def surest(score: Tensor, number: Tensor, temperature: float, uniforms: Tensor) -> Tensor:
    """[C, T] bool: `number` [C] positions of each chain, those of highest `score` [C, T] (of equals the first), or
    drawn without replacement in proportion to exp(score/temperature)."""
    chosen = torch.zeros_like(score, dtype=torch.bool)
    if temperature <= 0:
        rank = score.argsort(dim=1, descending=True, stable=True).argsort(1)
        return rank < number[:, None]
    for turn in range(int(number.max()) if len(number) else 0):
        chain = (number > turn).nonzero()[:, 0]
        weights = (score[chain] / temperature).masked_fill(chosen[chain], -torch.inf)
        chosen[chain, draw(weights, uniforms[chain, turn])] = True
    return chosen
