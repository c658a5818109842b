"""The tabular model: conditionals of a joint distribution, and tables read by context."""

from __future__ import annotations

import itertools

import pytest
import torch

from maskropolis.models.protocol import MaskedLM
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.sequences import Sequences


def joint() -> torch.Tensor:
    return torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def row(tokens: list[int]) -> Sequences:
    return Sequences.from_lists([tokens], [[True] * len(tokens)])


def test_conditionals_of_a_joint_with_any_set_masked() -> None:
    weights = joint() / joint().sum()
    model = TabularMaskedLM.from_joint(joint())
    for tokens in itertools.product(range(4), repeat=3):
        for t in range(3):
            context = list(tokens)
            context[t] = model.mask_token
            fixed = [slice(None) if token == 3 else token for token in context]
            marginal = weights[tuple(slice(None) if i == t else f for i, f in enumerate(fixed))]
            axes_left = [i for i, token in enumerate(context) if token == 3]
            other = [axis for axis, i in enumerate(axes_left) if i != t]
            expected = marginal.sum(other) if other else marginal
            found = model.logits(row(context), torch.tensor([[t]]))[0, 0]
            assert found[3] == -torch.inf
            torch.testing.assert_close(found[:3].softmax(0), expected / expected.sum(), atol=1e-12, rtol=0)


def test_it_is_a_masked_lm_with_a_fingerprint() -> None:
    model = TabularMaskedLM.random(2, [1, 2], seed=0)
    assert isinstance(model, MaskedLM)
    assert model.fingerprint() == TabularMaskedLM.random(2, [1, 2], seed=0).fingerprint()
    assert model.fingerprint() != TabularMaskedLM.random(2, [1, 2], seed=1).fingerprint()
    assert model.allowed.tolist() == [True, True, False]


def test_lengths_share_a_batch() -> None:
    model = TabularMaskedLM.random(2, [1, 2], seed=0)
    both = Sequences.from_lists([[1, 2], [2]], [[True, True], [True]])
    logits = model.logits(both, torch.tensor([[1], [0]]))
    assert torch.equal(logits[0, 0], model.tables[2][1, 1 * 3 + 2])
    assert torch.equal(logits[1, 0], model.tables[1][0, 2])


def test_unknown_lengths_and_wrong_shapes() -> None:
    model = TabularMaskedLM.random(2, [1, 2], seed=0)
    with pytest.raises(ValueError, match="no table for sequences of 3"):
        model.logits(row([0, 0, 0]), torch.tensor([[0]]))
    with pytest.raises(ValueError, match="must have shape"):
        TabularMaskedLM({2: torch.zeros(2, 2, 3)}, 3)
