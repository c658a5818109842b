"""Are the masked conditionals those of one joint distribution? They are not, and this measures by how much.

For two free positions i, j with everything else fixed, conditionals p_i(a|b) and p_j(b|a) come from one joint
distribution only if both give the same odds ratio for all tokens a, a' at i and b, b' at j:

    log p_i(a|b) p_i(a'|b') / p_i(a'|b) p_i(a|b')  =  log p_j(b|a) p_j(b'|a') / p_j(b'|a) p_j(b|a')

The left side composes "change i, given each b", the right side "change j, given each a": two orders of the same two
changes. Both would be log p(a,b) p(a',b') / p(a',b) p(a,b'). The discrepancy is the absolute difference, in nats; it
does not depend on how the conditionals are normalised. Arnold & Press (1989), Besag (1974); for MLMs Goyal et al.
(2022), section 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import conditionals_at


@dataclass(frozen=True)
class Discrepancy:
    """The worst disagreement between the two orders at one pair of positions.

    Attributes:
        positions: (i, j). tokens: (a, a', b, b') where it is largest; context: tokens of the row it was found in.
        log_odds_ratios: the two sides there, in nats. largest: their absolute difference.
        median: median absolute difference over all quadruples and contexts.
    """

    positions: tuple[int, int]
    tokens: tuple[int, int, int, int]
    context: tuple[int, ...]
    log_odds_ratios: tuple[float, float]
    largest: float
    median: float


def discrepancies(model: MaskedLM, template: Sequences, tokens: Tensor) -> list[Discrepancy]:
    """For each pair of free positions of the one row `template`, over `tokens` [M], with the other free positions at
    each of these tokens in turn; worst pair first."""
    free = template.free[0].nonzero()[:, 0].tolist()
    found = [_worst(model, template, tokens, i, j, free) for i, j in itertools.combinations(free, 2)]
    return sorted(found, key=lambda item: -item.largest)


def _worst(model: MaskedLM, template: Sequences, tokens: Tensor, i: int, j: int, free: list[int]) -> Discrepancy:
    best: Discrepancy | None = None
    every: list[Tensor] = []
    for context in _contexts(template, tokens, [t for t in free if t not in (i, j)]):
        left, right = odds_tables(model, context, tokens, i, j)
        difference = _log_odds_ratios(left) - _log_odds_ratios(right)
        every.append(difference.abs().flatten())
        largest = float(difference.abs().max())
        if best is None or largest > best.largest:
            at = torch.unravel_index(difference.abs().argmax(), difference.shape)
            a, other_a, b, other_b = (int(tokens[index]) for index in at)
            sides = float(_log_odds_ratios(left)[at]), float(_log_odds_ratios(right)[at])
            row = tuple(context.tokens[0].tolist())
            best = Discrepancy((i, j), (a, other_a, b, other_b), row, sides, largest, 0.0)
    assert best is not None
    together = torch.cat(every)
    median = float(together[together > 0].median()) if bool((together > 0).any()) else 0.0
    return Discrepancy(best.positions, best.tokens, best.context, best.log_odds_ratios, best.largest, median)


def _contexts(template: Sequences, tokens: Tensor, others: list[int]) -> Iterator[Sequences]:
    for filling in itertools.product(tokens.tolist(), repeat=len(others)):
        if not others:
            yield template
            continue
        at = torch.tensor([others], device=template.device)
        yield template.with_tokens(at, torch.tensor([filling], device=template.device))


def odds_tables(model: MaskedLM, context: Sequences, tokens: Tensor, i: int, j: int) -> tuple[Tensor, Tensor]:
    """log p_i(a|b) and log p_j(b|a), both [M, M] with a first, up to constants that cancel in odds ratios."""
    count, device = len(tokens), context.device
    copies = context.rows(torch.zeros(count, dtype=torch.long, device=device))

    def given(seen: int, asked: int) -> Tensor:
        at_seen = torch.full((count,), seen, device=device)
        at_asked = torch.full((count,), asked, device=device)
        return conditionals_at(model, copies.with_tokens(at_seen, tokens), at_asked)[:, tokens].double().cpu()

    return given(j, i).T, given(i, j)


def _log_odds_ratios(table: Tensor) -> Tensor:
    """[M, M, M, M] over (a, a', b, b'): t(a,b) − t(a',b) − t(a,b') + t(a',b')."""
    rows = table[:, None, :] - table[None, :, :]
    return rows[:, :, :, None] - rows[:, :, None, :]
