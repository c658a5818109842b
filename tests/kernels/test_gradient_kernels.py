"""Kernels that follow a gradient: exact whatever the gradient says, on networks too, and beside other kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from maskropolis import HuggingFaceMaskedLM
from maskropolis.errors import InputError
from maskropolis.kernels.gradient.first_order import SLOPES
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.proof.certificate import certify
from maskropolis.proof.situations import real_situation
from maskropolis.proof.transition import detailed_balance_error, transition_matrix
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, RAW
from maskropolis.targets.enumeration import all_states, exact_distribution
from maskropolis.targets.gradients import evaluate_with_slopes

NAMES = ["gwg", "discrete-langevin:step_size=2"]


class Misled(TabularMaskedLM):
    """Slopes that have little to do with the energy, yet are a function of the row."""

    def logits_and_slopes(self, sequences: Sequences, positions: Tensor, *rest) -> tuple[Tensor, Tensor]:
        logits, slopes = super().logits_and_slopes(sequences, positions, *rest)
        return logits, slopes.sin() + 0.1 * positions[:, None, None]


def _states(model: TabularMaskedLM) -> Sequences:
    free = torch.ones(1, 3, dtype=torch.bool)
    return all_states(model, Sequences(torch.zeros(1, 3, dtype=torch.long), free, free))


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_gradient_costs_acceptance_not_exactness(name: str) -> None:
    plain = TabularMaskedLM.random(2, [3], seed=5, spread=1.5)
    model, states = Misled(plain.tables, plain.vocabulary_size), _states(plain)
    kernel = build_kernel(name, NORM)
    target = exact_distribution(model, NORM, states)
    misled, informed = (transition_matrix(of, kernel, states) for of in (model, plain))
    assert detailed_balance_error(misled, target) < 1e-10
    assert float((misled - informed).abs().max()) > 0.01


@pytest.mark.parametrize("name", NAMES)
def test_the_acceptance_ratio_matters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way back taken at x instead of x', detailed balance must fail."""
    kernel = build_kernel(name, RAW)
    kind = type(kernel)
    real = kind.log_q_back
    monkeypatch.setattr(kind, "log_q_back", lambda self, after, move, before: real(self, after, move, before) * 0.5)
    model = TabularMaskedLM.random(2, [3], seed=5, spread=1.5)
    states = _states(model)
    target = exact_distribution(model, RAW, states)
    assert detailed_balance_error(transition_matrix(model, kernel, states), target) > 1e-3


@pytest.mark.parametrize("energy", ["norm", "raw"])
@pytest.mark.parametrize("name", NAMES)
def test_exact_on_a_network(tiny_bert: HuggingFaceMaskedLM, name: str, energy: str) -> None:
    with torch.inference_mode():  # as `maskropolis verify` does
        found = certify(name, real_situation(tiny_bert, "the [MASK] sat [MASK]."), energy)
    assert found.holds and found.detailed_balance_error < 1e-10, found


def test_beside_other_kernels_the_slopes_are_those_of_the_state() -> None:
    model = TabularMaskedLM.random(3, [4, 5], seed=2, spread=2.0)
    kernel = build_kernel("mixture:gwg=1,single-site=1,discrete-langevin(step_size=2)=1", NORM)
    start = Sequences.from_lists([[0, 1, 2, 0], [1, 1, 0, 2, 2]], [[True] * 4, [True, False, True, True, True]])
    state, streams = kernel.init(model, start), Streams(3, range(2))
    for step in range(40):
        state, _ = kernel.step(model, state, 0.9, streams.uniforms(step, kernel.uniforms_per_step))
        evaluation, slopes = evaluate_with_slopes(model, NORM, state.sequences)
        known = ~state.memory[SLOPES].isnan().flatten(1).any(1)
        assert torch.allclose(state.memory[SLOPES][known], slopes[known])
        assert torch.allclose(state.energy, evaluation.energy)


def test_langevin_moves_k_of_a_longer_row() -> None:
    model = TabularMaskedLM.random(2, [5], seed=2)
    free = torch.ones(200, 5, dtype=torch.bool)
    start = Sequences(torch.zeros(200, 5, dtype=torch.long), free, free)
    kernel = build_kernel("discrete-langevin:k=2,step_size=50", RAW)
    state = kernel.init(model, start)
    _, info = kernel.step(model, state, 5.0, Streams(0, range(200)).uniforms(0, 4))
    assert info.positions.shape == (200, 2) and int(info.changed.max()) == 2
    neighbours = (info.positions[:, 1] - info.positions[:, 0]) % 5 == 1
    assert bool(neighbours.all()) and len(info.positions[:, 0].unique()) == 5


@pytest.mark.parametrize(
    ("settings", "message"), [("step_size=0", "step size 0.0 is out of range"), ("k=0", "k = 0 positions")]
)
def test_settings_that_make_no_sense(settings: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_kernel(f"discrete-langevin:{settings}", NORM)
