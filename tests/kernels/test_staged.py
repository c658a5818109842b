"""Staged acceptance makes the decisions of a plain loop that computes every energy whole, and pays for fewer rows."""

from __future__ import annotations

import pytest
import torch

from maskropolis.errors import InputError
from maskropolis.kernels.specification import build_kernel
from maskropolis.kernels.staged import Staged, _near
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import ENERGIES

STEPS, CHAINS, TEMPERATURE = 80, 6, 0.8
FREE = ([True] * 7, [True, False, True, True, True, False, True])


def _start() -> Sequences:
    free = [FREE[c % 2] for c in range(CHAINS)]
    return Sequences.from_lists([[(c + t) % 3 for t in range(7)] for c in range(CHAINS)], free)


def _stages(x: Sequences, positions: list[int], chain: int, terms: int) -> tuple[list[int], list[int]]:
    """Positions of A and of R, found one by one."""
    free = [t for t in range(7) if bool(x.free[chain, t])]
    others = sorted((t for t in free if t not in positions), key=lambda t: min(abs(t - p) for p in positions))
    first = sorted({*positions, *others[:terms]})
    return first, [t for t in free if t not in first]


@pytest.mark.parametrize("energy", ["raw", "norm"])
@pytest.mark.parametrize("inner", ["path:k=2", "single-site", "block:k=3"])
@pytest.mark.parametrize("terms", [0, 2])
def test_the_same_chain_as_a_plain_loop(inner: str, terms: int, energy: str) -> None:
    model, target = TabularMaskedLM.random(3, [7], seed=1, spread=2.0), ENERGIES[energy]
    kernel = Staged(target, build_kernel(inner, target), terms)
    streams, state, x, rows, whole = Streams(5, range(CHAINS)), kernel.init(model, _start()), _start(), 0, 0
    for step in range(STEPS):
        uniforms = streams.uniforms(step, kernel.uniforms_per_step)
        plain = kernel.kernel.init(model, x)
        proposal = kernel.kernel.propose(model, plain, uniforms[:, :-1])
        new, old = target.evaluate(model, proposal.sequences), target.evaluate(model, x)
        tokens = x.tokens.clone()
        for c in range(CHAINS):
            a, r = _stages(x, proposal.positions[c].tolist(), c, terms)
            loss = (new.terms[c] - old.terms[c]) / TEMPERATURE
            first, second = proposal.log_q[c] - loss[a].sum(), -loss[r].sum()
            if uniforms[c, -2].log() < first and uniforms[c, -1].log() < second:
                tokens[c] = proposal.sequences.tokens[c]
        x = Sequences(tokens, x.free, x.attention)
        state, info = kernel.step(model, state, TEMPERATURE, uniforms)
        assert torch.equal(state.sequences.tokens, x.tokens)
        assert torch.allclose(state.energy, target.evaluate(model, x).energy, atol=1e-10)
        rows, whole = rows + info.rows, whole + new.rows
    assert rows < whole


def test_stage_one_looks_at_the_changed_positions_and_their_free_neighbours() -> None:
    yes = torch.ones(1, 7, dtype=torch.bool)
    free = torch.tensor([[True, False, True, True, True, True, True]])
    sequences = Sequences(torch.zeros(1, 7, dtype=torch.long), free, yes)
    for positions in ([[3, 6]], [[6, 3]]):
        near = _near(sequences, torch.tensor(positions), 2)
        assert near[0].nonzero()[:, 0].tolist() == [2, 3, 4, 6]  # 2, 4 and 5 are equally far: the left ones first


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="expected 0 or more"):
        build_kernel("staged:terms=-1", ENERGIES["raw"])
    with pytest.raises(InputError, match="is none: take single-site, path or block"):
        build_kernel("staged:kernel=informed", ENERGIES["raw"])
