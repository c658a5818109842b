"""Surrogate energies, and a chain whose surrogate is another model."""

from __future__ import annotations

import pytest
import torch

from maskropolis.errors import InputError
from maskropolis.kernels.delayed import Delayed
from maskropolis.kernels.path import Path
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.proof.transition import detailed_balance_error, transition_matrix
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, RAW
from maskropolis.targets.enumeration import all_states, exact_distribution
from maskropolis.targets.surrogate import OtherModel, Surrogate, surrogate_by_name

FREE = ([True, True, False, True], [True, False, True])


def _sequences() -> Sequences:
    return Sequences.from_lists([[1, 0, 1, 1], [0, 1, 1]], FREE)


def _by_hand(model: TabularMaskedLM, groups: int) -> list[float]:
    energies = []
    for tokens, free in zip([[1, 0, 1, 1], [0, 1, 1]], FREE, strict=True):
        positions, total = [t for t, may in enumerate(free) if may], 0.0
        for rank, t in enumerate(positions):
            masked = [s for r, s in enumerate(positions) if groups and r % groups == rank % groups]
            row = torch.tensor([[model.mask_token if s in masked else w for s, w in enumerate(tokens)]])
            yes = torch.ones_like(row, dtype=torch.bool)
            logits = model.logits(Sequences(row, yes, yes), torch.tensor([[t]]))[0, 0]
            total -= float(logits.log_softmax(-1)[tokens[t]])
        energies.append(total)
    return energies


@pytest.mark.parametrize("budget", [1, 4096])
@pytest.mark.parametrize("groups", [0, 1, 2, 3, 5])
def test_surrogates_are_what_they_say(groups: int, budget: int) -> None:
    model = TabularMaskedLM.random(2, [3, 4], seed=4)
    model.budget.tokens = budget
    found = Surrogate(groups).evaluate(model, _sequences())
    assert found.energy.tolist() == pytest.approx(_by_hand(model, groups), abs=1e-12)
    assert torch.allclose(found.terms.sum(1), found.energy)
    assert found.rows == sum(max(1, min(groups, sum(free))) for free in FREE)


def test_one_group_for_each_position_is_the_energy_itself() -> None:
    model = TabularMaskedLM.random(2, [3, 4], seed=4)
    exact, grouped = NORM.evaluate(model, _sequences()), Surrogate(3).evaluate(model, _sequences())
    assert torch.allclose(exact.energy, grouped.energy)


@pytest.mark.parametrize("energy", [RAW, NORM], ids=lambda e: e.name)
def test_another_model_as_surrogate_leaves_the_target_exact(energy) -> None:
    model, other = (TabularMaskedLM.random(2, [3], seed=seed, spread=1.5) for seed in (1, 2))
    free = torch.ones(1, 3, dtype=torch.bool)
    states = all_states(model, Sequences(torch.zeros(1, 3, dtype=torch.long), free, free))
    kernel = Delayed(energy, kernel=Path(k=2), surrogate=OtherModel(other, energy))
    matrix = transition_matrix(model, kernel, states, 0.8)
    assert detailed_balance_error(matrix, exact_distribution(model, energy, states, 0.8)) < 1e-10


def test_another_vocabulary_is_refused() -> None:
    model, other = TabularMaskedLM.random(2, [3, 4], 0), TabularMaskedLM.random(3, [3, 4], 0)
    with pytest.raises(InputError, match="expected one vocabulary"):
        OtherModel(other).evaluate(model, _sequences())
    with pytest.raises(InputError):
        surrogate_by_name("grouped/0")
