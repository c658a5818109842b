"""What tempering says of its swaps, and how its ladder is spaced; its exactness is tested in tests/exact."""

from __future__ import annotations

import numpy as np
import torch

from maskropolis.kernels.single_site import SingleSite
from maskropolis.kernels.tempering import Tempering
from maskropolis.models.tabular import TabularMaskedLM
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM


def _run(kernel: Tempering, steps: int, chains: int = 64):
    model = TabularMaskedLM.random(2, [3], seed=1, spread=3.0)
    free = torch.ones(chains, 3, dtype=torch.bool)
    state = kernel.init(model, Sequences(torch.zeros(chains, 3, dtype=torch.long), free, free))
    streams = Streams(0, range(chains))
    for step in range(steps):
        state, info = kernel.step(model, state, 1.0, streams.uniforms(step, kernel.uniforms_per_step))
    return model, state, info


def test_the_state_shows_the_replica_at_level_0() -> None:
    model, state, _ = _run(Tempering(NORM, levels=3, hottest=4.0), 7)
    level = state.memory["level"]
    assert bool((level.sort(1).values == torch.arange(3)).all())
    replicas = state.inner.sequences.tokens.view(64, 3, 3)
    assert torch.equal(state.sequences.tokens, replicas[torch.arange(64), level.argmin(1)])
    assert torch.allclose(state.energy, NORM.evaluate(model, state.sequences).energy)
    some = state.rows(torch.tensor([5, 2]))
    assert torch.equal(some.inner.sequences.tokens.view(2, 3, 3), replicas[[5, 2]])


def test_neighbours_swap_in_turn_and_the_rates_are_counted() -> None:
    kernel = Tempering(NORM, levels=3, hottest=4.0)
    _, state, _ = _run(kernel, 10)
    assert bool((state.memory["tried"] == 5).all())
    rates = kernel.swap_rates(state)
    assert len(rates) == 2 and all(0 < rate < 1 for rate in rates)


def test_an_adapted_ladder_evens_out_the_swap_rates() -> None:
    uneven = Tempering(NORM, kernel=SingleSite(), ladder=(1.0, 1.02, 1.05, 20.0))
    _, state, _ = _run(uneven, 200)
    before = uneven.swap_rates(state)
    adapted = uneven.adapted(state)
    assert adapted.factors[0] == 1 and np.isclose(adapted.factors[-1], 20) and adapted.kernel == uneven.kernel
    _, state, _ = _run(adapted, 200)
    after = adapted.swap_rates(state)
    assert max(after) - min(after) < (max(before) - min(before)) / 2
    assert min(after) > min(before)


def test_rows_are_those_of_all_replicas() -> None:
    _, state, info = _run(Tempering(NORM, levels=4, kernel=SingleSite(early_rejection=False)), 1)
    moved = info.rows
    assert 0 < moved <= 64 * 4 * 2 and moved % 2 == 0
    assert state.step == 1
