"""Streams are functions of (seed, chain, purpose, step, column); draws follow their probabilities exactly."""

from __future__ import annotations

import math

import numpy as np
import torch

from maskropolis.randomness import AUXILIARY, CHAIN, Streams, accept, draw, observed, pick


def test_a_value_depends_on_nothing_else() -> None:
    together = Streams(7, range(5))
    first = together.uniforms(3, 6)
    later = together.uniforms(1000, 6)
    for chain in range(5):
        alone = Streams(7, [chain])
        assert torch.equal(alone.uniforms(1000, 6)[0], later[chain])
        assert torch.equal(alone.uniforms(3, 6)[0], first[chain])
    assert torch.equal(Streams(7, [4, 0]).uniforms(3, 6), first[[4, 0]])


def test_values_are_those_of_philox() -> None:
    raw = np.random.Philox(counter=[5, 0, 0, CHAIN], key=[7, 2]).random_raw(4)
    expected = ((raw >> np.uint64(12)).astype(float) + 0.5) / 2**52
    assert Streams(7, [2]).uniforms(5, 3)[0].tolist() == expected[:3].tolist()


def test_seeds_chains_purposes_and_steps_differ() -> None:
    values = torch.cat([
        Streams(seed, [chain], purpose).uniforms(step, 4)[0]
        for seed in (0, 1) for chain in (0, 1) for purpose in (CHAIN, AUXILIARY) for step in (0, 1)
    ])  # fmt: skip
    assert len(values.unique()) == len(values) == 64


def test_uniforms_are_inside_and_uniform() -> None:
    """Kolmogorov–Smirnov: P(D > d) ≤ 2 exp(−2 n d²), so d = sqrt(ln(2·10⁹) / 2n) fails once in 10⁹ times."""
    values = torch.cat([Streams(11, range(8)).uniforms(step, 4).flatten() for step in range(1000)]).sort().values
    n = len(values)
    assert float(values[0]) > 0 and float(values[-1]) < 1
    grid = torch.arange(1, n + 1, dtype=torch.float64) / n
    distance = torch.maximum((grid - values).abs().max(), (values - grid + 1 / n).abs().max())
    assert float(distance) < math.sqrt(math.log(2e9) / (2 * n))


def test_draw_inverts_the_distribution_function() -> None:
    log_weights = torch.tensor([[-torch.inf, 0.0, math.log(3), -torch.inf]]).double().expand(5, -1)
    uniforms = torch.tensor([1e-300, 0.2499, 0.2501, 0.9, 1 - 2.0**-53]).double()
    assert draw(log_weights, uniforms).tolist() == [1, 1, 2, 2, 2]


def test_draws_have_their_frequencies() -> None:
    """Stratified uniforms (i + ½)/n give each category n·p draws, but for one at each of its two ends."""
    n = 10_000
    log_weights = torch.randn(50, generator=torch.Generator().manual_seed(0)).double()
    uniforms = (torch.arange(n).double() + 0.5) / n
    counts = draw(log_weights.expand(n, -1), uniforms).bincount(minlength=50)
    assert float((counts - n * log_weights.softmax(0)).abs().max()) <= 1 + 1e-6


def test_picks_are_uniform_on_their_range() -> None:
    uniforms = (torch.arange(12).double() + 0.5) / 12
    assert pick(torch.full((12,), 3), uniforms).bincount().tolist() == [4, 4, 4]
    assert pick(torch.tensor([1, 5]), torch.tensor([1 - 2.0**-53] * 2).double()).tolist() == [0, 4]


def test_accept() -> None:
    ratios = torch.tensor([0.5, math.log(0.5), math.log(0.5), -torch.inf, torch.nan]).double()
    uniforms = torch.tensor([0.999, 0.499, 0.501, 1e-300, 1e-300]).double()
    assert accept(ratios, uniforms).tolist() == [True, True, False, False, False]


def test_an_observer_sees_the_probabilities() -> None:
    seen: list[torch.Tensor] = []
    with observed(lambda probabilities, uniforms: seen.append(probabilities)):
        half = torch.tensor([0.5]).double()
        pick(torch.tensor([4]), half)
        draw(torch.tensor([[0.0, math.log(3)]], dtype=torch.float64), half)
        accept(torch.tensor([math.log(0.25)], dtype=torch.float64), half)
    expected = [[0.25] * 4, [0.25, 0.75], [0.25, 0.75]]
    for found, probabilities in zip(seen, expected, strict=True):
        torch.testing.assert_close(found[0], torch.tensor(probabilities, dtype=torch.float64), atol=1e-15, rtol=1e-12)
    pick(torch.tensor([4]), half)
    assert len(seen) == 3


def test_wide_uniforms_do_not_depend_on_how_many_are_asked_for():
    few, many = Streams(3, [0, 5]).wide(7, 3), Streams(3, [5]).wide(7, 50)
    assert few[1].tolist() == many[0, :3].tolist()
    assert len({*few.flatten().tolist(), *Streams(3, [0, 5]).wide(8, 3).flatten().tolist()}) == 12
