"""Experts first and early rejection: the same chain as everything computed in full, for fewer model rows."""

from __future__ import annotations

import pytest
import torch
from steering_cases import CONSTRAINTS, EXPERTS, decode, model, states, support, target

from maskropolis.kernels import Kernel
from maskropolis.kernels.specification import build_kernel
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.experts.counting import Pattern, regex
from maskropolis.targets.experts.function import Function
from maskropolis.targets.steered import SteeredEnergy

STEPS = 60
SPECIFICATIONS = ["single-site", "block:k=2", "path:k=3", "delayed", "delayed:kernel=single-site"]


def _run(network, kernel: Kernel, start: Sequences):
    """Tokens and acceptances [STEPS, C], energies, model rows."""
    streams, state = Streams(11, range(len(start))), kernel.init(network, start)
    tokens, accepted, energies, rows = [], [], [], 0
    for step in range(STEPS):
        state, info = kernel.step(network, state, 0.8, streams.uniforms(step, kernel.uniforms_per_step))
        tokens.append(state.sequences.tokens)
        accepted.append(info.accepted)
        energies.append(state.energy)
        rows += info.rows
    return torch.stack(tokens), torch.stack(accepted), torch.stack(energies), rows


@pytest.mark.parametrize("energy", ["norm", "raw"])
@pytest.mark.parametrize("constraints", ["a required pair", "several", "a forbidden word of the text"])
@pytest.mark.parametrize("specification", SPECIFICATIONS)
def test_early_rejection_gives_the_same_chain(specification: str, constraints: str, energy: str) -> None:
    network, steered = model(), target(energy, *CONSTRAINTS[constraints], experts=EXPERTS)
    network.budget.tokens = 24
    start = support(steered, states(network))
    quick, plain = (
        _run(network, build_kernel(specification, steered, early_rejection=early), start) for early in ("yes", "no")
    )
    assert torch.equal(quick[0], plain[0]) and torch.equal(quick[1], plain[1])
    assert torch.allclose(quick[2], plain[2], atol=1e-10)
    assert quick[3] < plain[3] or energy == "raw"
    fresh = steered.evaluate(network, Sequences(quick[0][-1], start.free, start.attention)).energy
    assert torch.allclose(quick[2][-1], fresh, atol=1e-10)


def test_a_cheap_expert_rejects_before_the_model_is_asked() -> None:
    """An expert that all but forbids every change leaves the model in peace."""
    network = model()
    start = states(network).rows(torch.tensor([0]))
    stay = regex("^" + decode(start)[0] + "$")
    kernel = build_kernel("single-site", target("norm", experts=((1e6, stay),)))
    assert _run(network, kernel, start)[3] == 0
    hurried = build_kernel("single-site:early_rejection=no", target("norm", experts=((1e6, stay),)))
    assert _run(network, hurried, start)[3] >= 50


def test_an_expert_that_forbids_rejects_before_the_model_is_asked_also_with_the_raw_energy() -> None:
    network = model()
    start = states(network).rows(torch.tensor([0]))
    text = decode(start)[0]
    stay = Function("stay", lambda texts: [0.0 if t == text else float("inf") for t in texts])
    kernel = build_kernel("single-site", target("raw", experts=((1.0, stay),)))
    tokens, _, energies, rows = _run(network, kernel, start)
    assert rows == 0 and bool((tokens == start.tokens).all()) and bool(energies.isfinite().all())


class Counted:
    """An expert that counts the texts that it is asked about."""

    bounded, repels, name = True, True, "counted"

    def __init__(self, cost: int, inner: Pattern) -> None:
        self.cost, self.inner, self.asked = cost, inner, 0

    def energy(self, sequences, texts):
        self.asked += len(texts)
        return self.inner.energy(sequences, texts)


def test_costly_experts_are_asked_last_and_less() -> None:
    network = model()
    start = states(network)
    dear, cheap = Counted(2, regex("bb")), Counted(0, regex("a"))
    pairs = ((1.0, dear), (8.0, cheap))
    chain = _run(network, build_kernel("single-site", target("norm", experts=pairs)), start)
    assert 0 < dear.asked < cheap.asked
    turned = SteeredEnergy(target().masked, decode, tuple(reversed(pairs)))
    again = _run(network, build_kernel("single-site:early_rejection=no", turned), start)
    assert torch.equal(chain[0], again[0])


def test_chains_do_not_depend_on_how_they_are_batched() -> None:
    network, steered = model(), target("norm", *CONSTRAINTS["several"], experts=EXPERTS)
    start = support(steered, states(network))
    kernel = build_kernel("single-site", steered)
    together = _run(network, kernel, start)[0]
    state = kernel.init(network, start.rows(torch.tensor([3])))
    streams = Streams(11, [3])
    for step in range(STEPS):
        state, _ = kernel.step(network, state, 0.8, streams.uniforms(step, 3))
        assert torch.equal(state.sequences.tokens[0], together[step, 3])
