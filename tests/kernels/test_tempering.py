"""What tempering says of its swaps, and how its ladder is spaced; its exactness is tested in tests/exact."""

from __future__ import annotations

import torch

from maskropolis.kernels.single_site import SingleSite
from maskropolis.kernels.tempering import Tempering
from maskropolis.models.reference.tabular import TabularMaskedLM
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


UNEVEN = {"kernel": SingleSite(), "ladder": (1.0, 1.02, 1.05, 20.0)}


def test_an_adapted_ladder_evens_out_the_swap_rates() -> None:
    fixed = Tempering(NORM, **UNEVEN)
    adapting = Tempering(NORM, **UNEVEN, adapt=400)
    _, state, _ = _run(fixed, 800)
    before = fixed.swap_rates(state)
    _, state, _ = _run(adapting, 800)
    after = adapting.swap_rates(state)
    assert bool((state.memory["tried"] == 200).all()), "counted since the ladder was spaced last"
    assert max(after) - min(after) < (max(before) - min(before)) / 2
    assert min(after) > min(before)
    ladder = state.memory["ladder"]
    assert (
        bool((ladder[:, 0] == 1).all()) and bool((ladder[:, -1] == 20).all()) and bool((ladder.diff(dim=1) > 0).all())
    )
    said = adapting.remark(state)
    assert f"{after[1]:.0%}" in said and "ladder 1, " in said and said.endswith(", 20")


def test_the_ladder_changes_while_it_adapts_and_never_again() -> None:
    kernel = Tempering(NORM, **UNEVEN, adapt=40)
    ladders = {steps: _run(kernel, steps, chains=3)[1].memory["ladder"] for steps in (9, 10, 20, 39, 40, 60)}
    assert ladders[9].tolist() == [list(UNEVEN["ladder"])] * 3
    assert not torch.equal(ladders[10], ladders[9]) and not torch.equal(ladders[20], ladders[10])
    assert torch.equal(ladders[39], ladders[20]) and not torch.equal(ladders[40], ladders[39])
    assert torch.equal(ladders[60], ladders[40])


def test_a_chain_adapts_whatever_chains_run_beside_it() -> None:
    kernel = Tempering(NORM, **UNEVEN, adapt=40)
    _, few, _ = _run(kernel, 60, chains=2)
    _, many, _ = _run(kernel, 60, chains=5)
    assert torch.equal(few.memory["ladder"], many.memory["ladder"][:2])
    assert torch.equal(few.sequences.tokens, many.sequences.tokens[:2])


def test_rows_are_those_of_all_replicas() -> None:
    _, state, info = _run(Tempering(NORM, levels=4, kernel=SingleSite(early_rejection=False)), 1)
    moved = info.rows
    assert 0 < moved <= 64 * 4 * 2 and moved % 2 == 0
    assert state.step == 1
