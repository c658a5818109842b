"""Experts and constraints leave every exact kernel exact, by its full transition matrix on the constrained set."""

from __future__ import annotations

import itertools

import pytest
import torch
from steering_cases import CONSTRAINTS, EXACT, EXPERTS, TOKENS, decode, model, states, support, target

from maskropolis.kernels import KERNELS
from maskropolis.kernels.specification import build_kernel
from maskropolis.proof.markov import closed_classes
from maskropolis.proof.transition import invariance_error, transition_matrix, transition_of_states
from maskropolis.targets.enumeration import exact_distribution
from maskropolis.targets.steered import allowed_at

TOLERANCE = 1e-10


def test_every_exact_kernel_is_here() -> None:
    elsewhere = {"tempering", "resize"}
    exact = {name for name, kind in KERNELS.items() if kind.exact}
    assert {specification.partition(":")[0] for specification in EXACT} >= exact - elsewhere


@pytest.mark.parametrize("energy", ["norm", "raw"])
@pytest.mark.parametrize("specification", EXACT)
def test_with_experts(specification: str, energy: str) -> None:
    network, steered = model(), target(energy, experts=EXPERTS)
    every, kernel = states(network), build_kernel(specification, steered)
    wanted = exact_distribution(network, steered, every, 0.8)
    plain = exact_distribution(network, steered.masked, every, 0.8)
    assert float((wanted - plain).abs().max()) > 0.05
    for step in range(3 if "scan" in specification else 1):
        matrix = transition_matrix(network, kernel, every, 0.8, step)
        assert invariance_error(matrix, wanted) < TOLERANCE


def test_the_energy_is_the_weighted_sum() -> None:
    network, steered = model(), target("norm", experts=EXPERTS)
    every = states(network)
    said = sum(weight * expert.energy(every, decode(every)) for weight, expert in EXPERTS)
    assert torch.allclose(
        steered.evaluate(network, every).energy, steered.masked.evaluate(network, every).energy + said
    )


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("specification", EXACT)
def test_on_the_constrained_set(specification: str, name: str) -> None:
    """`transition_matrix` raises if the kernel leaves the listed states."""
    network, steered = model(), target("norm", *CONSTRAINTS[name], experts=EXPERTS[:2])
    inside = support(steered, states(network))
    assert 1 < len(inside) < TOKENS**3
    kernel = build_kernel(specification, steered)
    wanted = exact_distribution(network, steered, inside, 1.2)
    for step in range(3 if "scan" in specification else 1):
        matrix = transition_matrix(network, kernel, inside, 1.2, step)
        assert torch.allclose(matrix.sum(1), torch.ones(len(inside), dtype=torch.float64), atol=1e-12)
        assert invariance_error(matrix, wanted) < TOLERANCE


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_single_site_proposals_stay_inside_and_miss_nothing(name: str) -> None:
    """From within, the tokens allowed are those with which the constraints hold, but for what the text forbids."""
    network, steered = model(), target("norm", *CONSTRAINTS[name])
    every = states(network)
    good = steered.constraints.hold(every, decode(every))
    inside = dict(zip(map(tuple, every.tokens.tolist()), good.tolist(), strict=True))
    for t in every.free[0].nonzero()[:, 0].tolist():
        at = torch.full((len(every),), t)
        allowed = allowed_at(steered, network, every, at)
        for row, may in zip(every.tokens[good].tolist(), allowed[good].tolist(), strict=True):
            for token in range(TOKENS):
                holds = inside[(*row[:t], token, *row[t + 1 :])]
                assert may[token] >= holds if steered.constraints.of_text else may[token] == holds
            assert not may[TOKENS]


def test_a_rejected_text_is_the_only_reason_to_reject_for_constraints() -> None:
    """With the energy of the model flat, single-site moves on a renormalised support are all accepted."""
    network = model()
    for table in network.tables.values():
        table.zero_()
    steered = target("raw", *CONSTRAINTS["several"])
    inside = support(steered, states(network))
    kernel = build_kernel("single-site", steered)
    from maskropolis.randomness import Streams

    state, streams = kernel.init(network, inside), Streams(0, range(len(inside)))
    for step in range(50):
        state, info = kernel.step(network, state, 1.0, streams.uniforms(step, 3))
        assert bool(info.accepted.all())
        assert bool(steered.constraints.hold(state.sequences, decode(state.sequences)).all())


@pytest.mark.parametrize("name", ["a required pair", "several"])
def test_gibbs_stays_inside(name: str) -> None:
    network, steered = model(), target("norm", *CONSTRAINTS[name])
    inside = support(steered, states(network))
    matrix = transition_matrix(network, build_kernel("gibbs", steered), inside)
    assert torch.allclose(matrix.sum(1), torch.ones(len(inside), dtype=torch.float64), atol=1e-12)


def test_tempering_with_experts_and_constraints() -> None:
    network = model((2,))
    steered = target("norm", *CONSTRAINTS["a required token"], experts=EXPERTS[:1])
    kernel = build_kernel("tempering", steered)
    inside = support(steered, states(network, (True, True)))
    every, log_weights = kernel.enumerate(network, inside, 0.7)
    wanted = torch.softmax(log_weights, 0)
    for step in range(2):
        assert invariance_error(transition_of_states(network, kernel, every, 0.7, step), wanted) < TOLERANCE


def test_a_forgotten_renormalisation_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the set to depend on the token that is there now, the matrix would miss the target."""
    network, steered = model(), target("norm", *CONSTRAINTS["a forbidden pair"])
    inside = support(steered, states(network))
    wanted = exact_distribution(network, steered, inside)
    real = allowed_at

    def wrong(energy, of, sequences, positions, alone=False):
        allowed = real(energy, of, sequences, positions, alone).clone()
        odd = sequences.tokens_at(positions) == 1
        allowed[odd, 0] = False
        return allowed

    monkeypatch.setattr("maskropolis.kernels.single_site.allowed_at", wrong)
    matrix = transition_matrix(network, build_kernel("single-site:reuse_row=no", steered), inside)
    # the density of the way back is taken from the set of the way forth, so the ratio is wrong
    assert invariance_error(matrix, wanted) > 1e-4


def test_blocks_connect_what_single_sites_cannot() -> None:
    """aa and bb alone: no single token can change, two at once can."""
    pair = (CONSTRAINTS["a required pair"][0].__class__)("w", True, ((0, 0), (1, 1)), torch.zeros(4, dtype=torch.bool))
    network, steered = model((2,)), target("norm", pair)
    inside = support(steered, states(network, (True, True)))
    assert len(inside) == 2
    classes = [
        len(closed_classes(transition_matrix(network, build_kernel(name, steered), inside)))
        for name in ("single-site", "block")
    ]
    assert classes == [2, 1]


def test_no_repeat_against_plain_python() -> None:
    from maskropolis.targets.constraints.repeats import NoRepeat

    for n, free in itertools.product((1, 2, 3), ((True, True, True), (True, True, True, True))):
        every = states(model((len(free),)), free)
        rows = every.tokens.tolist()
        plain = [len({tuple(r[i : i + n]) for i in range(len(r) - n + 1)}) == len(r) - n + 1 for r in rows]
        assert NoRepeat(n, 4, 3).holds(every, []).tolist() == plain
