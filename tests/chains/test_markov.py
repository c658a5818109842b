"""Numbers from transition matrices, beside chains whose answer is known."""

from __future__ import annotations

import torch

from maskropolis.proof.markov import (
    closed_classes,
    detailed_balance_error,
    invariance_error,
    long_run_distribution,
    spectral_gap,
    stationary_distribution,
    total_variation,
)


def matrix(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_two_states() -> None:
    chain = matrix([0.9, 0.1], [0.3, 0.7])
    known = torch.tensor([0.75, 0.25], dtype=torch.float64)
    assert torch.allclose(stationary_distribution(chain), known, atol=1e-15)
    assert invariance_error(chain, known) < 1e-15
    assert detailed_balance_error(chain, known) < 1e-15
    assert abs(spectral_gap(chain) - 0.4) < 1e-12
    assert total_variation(known, known.flip(0)) == 0.5


def test_a_cycle_is_invariant_but_not_reversible() -> None:
    chain = matrix([0, 1, 0], [0, 0, 1], [1, 0, 0])
    uniform = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert invariance_error(chain, uniform) < 1e-15
    assert detailed_balance_error(chain, uniform) > 0.3
    assert spectral_gap(chain) < 1e-12


def test_slow_mixing_keeps_relative_accuracy() -> None:
    tiny = 1e-13
    chain = matrix([1 - tiny, tiny], [2 * tiny, 1 - 2 * tiny])
    found = stationary_distribution(chain)
    assert torch.allclose(found, torch.tensor([2 / 3, 1 / 3], dtype=torch.float64), rtol=1e-14)


def test_reducible_chains_settle_where_they_started_from() -> None:
    chain = matrix(
        [0.5, 0.5, 0.0, 0.0, 0.0],
        [0.2, 0.8, 0.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0],
        [0.0, 0.3, 0.1, 0.6, 0.0],
        [0.0, 0.0, 0.0, 0.5, 0.5],
    )
    assert [members.tolist() for members in closed_classes(chain)] == [[0, 1], [2]]
    start = torch.tensor([0.1, 0.0, 0.2, 0.3, 0.4], dtype=torch.float64)
    expected = start @ torch.linalg.matrix_power(chain, 400)
    assert torch.allclose(long_run_distribution(chain, start), expected, atol=1e-12)


def test_periodic_chains_have_a_long_run_distribution() -> None:
    chain = matrix([0, 1], [1, 0])
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert long_run_distribution(chain, start).tolist() == [0.5, 0.5]
