"""What the kernels are measured beside: single-site Metropolis–Hastings as a textbook has it, over a batch of chains.

One step is n + 1 forward passes with the full output layer: one for the proposal, one for each free position of x'. It
uses the uniforms as the kernel does, so it makes the same chain.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maskropolis.sequences import Sequences


class Textbook:
    """`tokens` [C, T] and `energy` [C] after the steps made so far; all chains have the same free positions."""

    def __init__(self, network: Any, mask_token: int, allowed: Tensor, start: Sequences, normalised: bool) -> None:
        self.network, self.mask_token, self.allowed, self.normalised = network, mask_token, allowed, normalised
        self.tokens, self.free = start.tokens, start.free[0].nonzero()[:, 0]
        self.energy = self._energy(self.tokens)

    def step(self, uniforms: Tensor) -> None:
        """`uniforms` [C, 3]: position, token, acceptance."""
        chains = torch.arange(len(self.tokens))
        t = self.free[(uniforms[:, 0] * len(self.free)).long()]
        log_q = self._logits(self.tokens, t).masked_fill(~self.allowed, -torch.inf).log_softmax(-1)
        new = torch.searchsorted(log_q.exp().cumsum(-1), uniforms[:, 1:2].contiguous(), right=True)[:, 0]
        proposed = self.tokens.clone()
        proposed[chains, t] = new
        energy = self._energy(proposed)
        log_ratio = self.energy - energy + log_q[chains, self.tokens[chains, t]] - log_q[chains, new]
        accepted = uniforms[:, 2].log() < log_ratio
        self.tokens = torch.where(accepted[:, None], proposed, self.tokens)
        self.energy = torch.where(accepted, energy, self.energy)

    def _energy(self, tokens: Tensor) -> Tensor:
        total = torch.zeros(len(tokens), dtype=torch.float64)
        for t in self.free:
            logits = self._logits(tokens, t.expand(len(tokens)))
            score = logits.log_softmax(-1) if self.normalised else logits
            total -= score.gather(1, tokens[:, t][:, None])[:, 0]
        return total

    @torch.inference_mode()
    def _logits(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """[C, V] float64 with `positions` [C] masked: the network's full output, of which one position is used."""
        chains = torch.arange(len(tokens))
        masked = tokens.clone()
        masked[chains, positions] = self.mask_token
        return self.network(input_ids=masked).logits[chains, positions].double()
