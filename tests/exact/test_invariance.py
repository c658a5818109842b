"""Every exact kernel against the exact distribution, by its full transition matrix."""

from __future__ import annotations

import pytest
import torch
from exactness_cases import ONE_SPACE, SITUATIONS, VARIANTS, Situation, Variant

from maskropolis.kernels import KERNELS
from maskropolis.kernels.gibbs import Gibbs
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.proof.transition import (
    detailed_balance_error,
    invariance_error,
    spectral_gap,
    stationary_distribution,
    total_variation,
    transition_matrix,
    transition_of_states,
)
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM
from maskropolis.targets.enumeration import all_states, exact_distribution

TOLERANCE = 1e-10


def test_every_registered_kernel_has_a_case() -> None:
    assert {variant.kernel for variant in VARIANTS} == set(KERNELS)
    tested = {v.kernel for v in ONE_SPACE if v.exact} | {"tempering", "resize"}  # resize: tests/steering
    assert tested == {name for name, kind in KERNELS.items() if kind.exact}, "give the new kernel a test of its space"


@pytest.mark.parametrize("energy", ["raw", "norm"])
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
@pytest.mark.parametrize("variant", [v for v in ONE_SPACE if v.exact], ids=str)
def test_exact_kernels_leave_the_target_invariant(variant: Variant, situation: Situation, energy: str) -> None:
    model, kernel = situation.model(), variant.build(energy)
    states = situation.states(model)
    target = exact_distribution(model, kernel.energy, states, situation.temperature)
    for step in range(1 if variant.reversible else 3):
        matrix = transition_matrix(model, kernel, states, situation.temperature, step)
        assert torch.allclose(matrix.sum(1), torch.ones(len(states), dtype=torch.float64), atol=1e-12)
        assert invariance_error(matrix, target) < TOLERANCE
        if variant.reversible:
            assert detailed_balance_error(matrix, target) < TOLERANCE


@pytest.mark.parametrize("name", sorted({v.kernel for v in ONE_SPACE if v.exact}))
def test_exact_kernels_reach_every_state(name: str) -> None:
    """Invariance alone would also hold for a kernel that never moves."""
    variant = next(v for v in VARIANTS if v.kernel == name)
    situation = SITUATIONS[0]
    model, kernel = situation.model(), variant.build("norm")
    states = situation.states(model)
    matrix = torch.eye(len(states), dtype=torch.float64)
    for step in range(2):
        matrix = matrix @ transition_matrix(model, kernel, states, situation.temperature, step)
    target = exact_distribution(model, kernel.energy, states, situation.temperature)
    assert spectral_gap(matrix) > 1e-4  # a Langevin step is small where there are but two tokens to go to
    assert total_variation(stationary_distribution(matrix), target) < 1e-9


TEMPERING = [
    "tempering:kernel=single-site",
    "tempering:kernel=single-site(scan=left-to-right),hottest=3",
    "tempering:kernel=informed(balancing=sqrt)",
    "tempering:kernel=delayed(kernel=single-site)",
    "tempering:kernel=mixture(single-site=1,path=2)",
    "tempering:kernel=single-site(reuse_row=no),ladder=1/1.3/2.5",
]


@pytest.mark.parametrize("energy", ["raw", "norm"])
@pytest.mark.parametrize("specification", TEMPERING)
def test_tempering_leaves_the_product_of_its_targets_invariant(specification: str, energy: str) -> None:
    """On the whole space of two positions, two tokens, all levels and all assignments of replicas to levels."""
    situation = Situation("two", (True, False, True), temperature=0.7)
    model, kernel = situation.model(), Variant(specification).build(energy)
    if len(kernel.factors) > 2:
        situation = Situation("one", (True, False), temperature=0.7)
        model = situation.model()
    states, log_weights = kernel.enumerate(model, situation.states(model), situation.temperature)
    target = torch.softmax(log_weights, 0)
    for step in range(3):
        matrix = transition_of_states(model, kernel, states, situation.temperature, step)
        assert invariance_error(matrix, target) < TOLERANCE
        assert torch.allclose(matrix.sum(1), torch.ones_like(target), atol=1e-12)
    # what the state shows, level 0, has the marginal π_τ
    sequences = situation.states(model)
    cold = exact_distribution(model, kernel.energy, sequences, situation.temperature)
    shown = torch.stack([target[(states.sequences.tokens == row).all(1)].sum() for row in sequences.tokens])
    assert torch.allclose(shown, cold, atol=1e-12)


def test_a_wrong_acceptance_ratio_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate itself is tested: with the proposal ratio forgotten, detailed balance must fail."""
    from maskropolis.kernels import single_site

    monkeypatch.setattr(single_site, "at", lambda log_q, tokens: torch.zeros(len(tokens), dtype=torch.float64))
    situation = SITUATIONS[0]
    model, kernel = situation.model(), Variant("single-site").build("norm")
    states = situation.states(model)
    target = exact_distribution(model, kernel.energy, states)
    assert detailed_balance_error(transition_matrix(model, kernel, states), target) > 1e-3


def _three_free() -> Sequences:
    free = torch.ones(1, 3, dtype=torch.bool)
    return Sequences(torch.zeros(1, 3, dtype=torch.long), free, free)


def test_gibbs_misses_the_target_of_an_inconsistent_model(record_property) -> None:
    """The masked conditionals belong to no joint distribution, so Gibbs goes elsewhere; where depends on its scan."""
    model = TabularMaskedLM.random(2, [3], seed=5, spread=1.5)
    states = all_states(model, _three_free())
    distances = {}
    for energy in ("raw", "norm"):
        target = exact_distribution(model, Variant("single-site").build(energy).energy, states)
        found = stationary_distribution(transition_matrix(model, Gibbs(), states))
        distances[energy] = total_variation(found, target)
        record_property(f"total_variation_{energy}", distances[energy])
    print(f"Gibbs from the target, total variation: {distances}")
    assert min(distances.values()) > 0.05


def test_gibbs_finds_the_joint_of_a_consistent_model() -> None:
    generator = torch.Generator().manual_seed(3)
    joint = torch.rand(2, 2, 2, generator=generator, dtype=torch.float64) + 0.05
    model = TabularMaskedLM.from_joint(joint)
    states = all_states(model, _three_free())
    matrix = transition_matrix(model, Gibbs(), states)
    assert detailed_balance_error(matrix, (joint / joint.sum()).flatten()) < TOLERANCE
    assert total_variation(stationary_distribution(matrix), (joint / joint.sum()).flatten()) < 1e-9
    # the pseudo-likelihood of a consistent model is yet another distribution
    assert total_variation(exact_distribution(model, NORM, states), (joint / joint.sum()).flatten()) > 0.01
