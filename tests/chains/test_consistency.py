"""Odds ratios of conditionals: equal for those of a joint distribution, different for others."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from maskropolis.models.reference.shortlist import ShortlistMaskedLM
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.proof.consistency import discrepancies
from maskropolis.sequences import Sequences


def template(length: int) -> Sequences:
    free = torch.ones(1, length, dtype=torch.bool)
    return Sequences(torch.zeros(1, length, dtype=torch.long), free, free)


def test_conditionals_of_a_joint_distribution_agree() -> None:
    joint = torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    found = discrepancies(TabularMaskedLM.from_joint(joint), template(3), torch.arange(3))
    assert len(found) == 3
    assert max(item.largest for item in found) < 1e-12


def test_the_worst_disagreement_is_the_one_that_plain_loops_find() -> None:
    model = TabularMaskedLM.random(3, [2], seed=4)

    def log_p(position: int, tokens: tuple[int, int]) -> float:
        row = Sequences(torch.tensor([tokens]), *[torch.ones(1, 2, dtype=torch.bool)] * 2)
        at = torch.tensor([[position]])
        logits = model.logits(row.masked(at[0], model.mask_token), at)[0, 0]
        return float(logits.log_softmax(-1)[tokens[position]])

    worst = 0.0
    for a, other_a, b, other_b in itertools.product(range(3), repeat=4):
        sides = [
            log_p(t, (a, b)) - log_p(t, (other_a, b)) - log_p(t, (a, other_b)) + log_p(t, (other_a, other_b))
            for t in (0, 1)
        ]
        worst = max(worst, abs(sides[0] - sides[1]))
    found = discrepancies(model, template(2), torch.arange(3))[0]
    assert math.isclose(found.largest, worst, rel_tol=1e-9)
    assert math.isclose(abs(found.log_odds_ratios[0] - found.log_odds_ratios[1]), worst, rel_tol=1e-9)
    assert 0 < found.median < worst


def test_a_shortlist_keeps_the_probabilities_of_the_whole_model(tiny_bert: Any) -> None:
    start = tiny_bert.codec.template(["the [MASK] [MASK]"])
    kept = tiny_bert.allowed.nonzero()[[3, 5, 8], 0]
    narrow = ShortlistMaskedLM(tiny_bert, kept, start)
    at = start.free[0].nonzero()[:, 0][None]
    whole = tiny_bert.logits(start, at)[0].double().log_softmax(-1)[:, kept]
    small = narrow.logits(narrow.narrow(start), at)[0].log_softmax(-1)[:, :3]
    assert torch.allclose(whole, small, atol=1e-6)
    assert narrow.allowed.tolist() == [True] * 3 + [False] * (narrow.vocabulary_size - 3)
