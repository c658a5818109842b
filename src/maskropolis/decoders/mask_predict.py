"""Mask-Predict: fill all masks at once, then mask the least certain tokens again and again, fewer each time.

    iteration 0      all N positions are masked and predicted
    iteration t      the n = max(1, ⌊N · (T − t) / T⌋) positions of lowest probability are masked and predicted anew

A token keeps the probability with which it was predicted until it is masked again. Ghazvininejad et al. (2019),
section 3.1 and the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.forward.rows import Rows, batches
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import free_in_order

_ALIKE = 0.8  # chains whose counts of masks are within this ratio are asked together


@dataclass(frozen=True, eq=False)
class Filled:
    """What Mask-Predict found.

    Attributes:
        sequences: no free position holds a mask.
        log_probabilities: [C, T] float64, of each free token when it was predicted last; 0 elsewhere.
        rows: model rows that it cost.
    """

    sequences: Sequences
    log_probabilities: Tensor
    rows: int

    @property
    def average(self) -> Tensor:
        """[C] float64, the mean log-probability of a free token: what chooses among lengths."""
        return self.log_probabilities.sum(1) / self.sequences.free_counts.clamp(min=1)


def mask_predict(model: MaskedLM, blank: Sequences, iterations: int = 10, tokens: Tensor | None = None) -> Filled:
    """Fill the free positions of `blank` (whatever they hold) in `iterations` rounds of one row a chain.

    `tokens` [V] bool are those that may be written, by default the allowed ones; probabilities are those of the full
    softmax. Raises `InputError` for less than one iteration.
    """
    if iterations < 1:
        raise InputError(f"{iterations} iterations of Mask-Predict are too few; expected at least 1")
    tokens = model.allowed if tokens is None else tokens
    sequences, counts, order = blank, blank.free_counts, free_in_order(blank)
    found = torch.zeros(blank.tokens.shape, dtype=torch.float64, device=blank.device)
    positions, rows = order, 0
    for iteration in range(iterations):
        masked = counts if iteration == 0 else remasked(counts, iteration, iterations)
        if iteration:
            positions = least_certain(found, blank.free, int(masked.max()) if len(masked) else 0)
        sequences, found, used = _predict(model, sequences, found, positions, masked, tokens)
        rows += used
    return Filled(sequences, found, rows)


def remasked(counts: Tensor, iteration: int, iterations: int) -> Tensor:
    """[C] int64, how many of `counts` [C] positions are masked in an iteration after the first (0)."""
    share = 1.0 - iteration / iterations
    return torch.minimum((counts.float() * share).long().clamp(min=1), counts)


def least_certain(log_probabilities: Tensor, free: Tensor, most: int) -> Tensor:
    """[C, most] int64, the free positions of lowest probability, lowest first; ties by position."""
    ranked = torch.where(free, log_probabilities, torch.inf)
    return ranked.argsort(dim=1, stable=True)[:, :most]


def _predict(
    model: MaskedLM, sequences: Sequences, found: Tensor, positions: Tensor, counts: Tensor, tokens: Tensor
) -> tuple[Sequences, Tensor, int]:
    """Mask the first `counts` [C] of `positions` [C, K] in each chain and write the likeliest token there."""
    new, found = sequences.tokens.clone(), found.clone()
    for chain, most in _portions(counts):
        some = positions[chain, :most]
        used = torch.arange(most, device=some.device) < counts[chain, None]
        some = torch.where(used, some, some[:, :1])
        rows = Rows(chain, some, some)
        for index, logits in batches(model, sequences, rows):
            at_chain, at = chain[index, None], some[index]
            best = likeliest(logits, tokens)
            score = logits.gather(-1, best[..., None])[..., 0] - logits.logsumexp(-1)
            new[at_chain, at] = best
            found[at_chain, at] = score.double()
    every = torch.arange(sequences.width, device=positions.device).expand(len(sequences), -1)
    return sequences.with_tokens(every, new), found, int((counts > 0).sum())


def _portions(counts: Tensor) -> Iterator[tuple[Tensor, int]]:
    """(chains, their largest count): chains of similar counts, so that few positions are asked only to fill up."""
    order = counts.argsort(descending=True, stable=True)
    ranked, start = counts[order].tolist(), 0
    while start < len(ranked) and ranked[start] > 0:
        least, stop = max(1, int(_ALIKE * ranked[start])), start + 1
        while stop < len(ranked) and ranked[stop] >= least:
            stop += 1
        yield order[start:stop], ranked[start]
        start = stop


def likeliest(logits: Tensor, tokens: Tensor) -> Tensor:
    """[N, K] int64, the token of highest logit [N, K, V] among those of `tokens` [V]; the first of equals."""
    best = logits.argmax(-1)
    refused = ~tokens[best]
    if bool(refused.any()):  # seldom: no masked copy of all logits is made
        best[refused] = logits[refused].masked_fill(~tokens, -torch.inf).argmax(-1)
    return best


def best_of(scores: Tensor, groups: Sequence[int]) -> list[int]:
    """For each group in order of first appearance, the index of its highest score [C]; the first of equals."""
    best: dict[int, int] = {}
    for index, (group, score) in enumerate(zip(groups, scores.tolist(), strict=True)):
        if group not in best or score > float(scores[best[group]]):
            best[group] = index
    return list(best.values())
