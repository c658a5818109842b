"""Intervals hold the truth as often as they say, keep to groups, and are reproducible."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maskropolis.errors import InputError
from maskropolis.evaluation.diversity import unique_share
from maskropolis.evaluation.intervals import Resampling, of_means, of_set, of_sums

FEW = Resampling(resamples=200, halves=100)


def misses(interval_of: object, trials: int) -> int:
    random = np.random.default_rng(1)
    return sum(not interval_of(random) for _ in range(trials))  # type: ignore[operator]


def require_coverage(missed: int, trials: int) -> None:
    """The count of misses is within four standard deviations of 5% and not above twice that: intervals of percentiles
    of 60 sentences and few resamples are somewhat too short."""
    spread = 4 * math.sqrt(trials * 0.05 * 0.95)
    assert trials * 0.05 - spread <= missed <= trials * 0.10 + spread


def test_coverage_of_a_ratio() -> None:
    def holds(random: np.random.Generator) -> bool:
        lengths = random.integers(5, 15, 60)
        values = lengths * 0.5 + random.normal(0, 2, 60)
        found = of_sums(values, lengths, range(60), FEW, np.exp)
        return found.low <= math.exp(0.5) <= found.high

    require_coverage(misses(holds, 200), 200)


def test_coverage_with_groups() -> None:
    """Twenty chains whose states are nearly equal: only intervals of whole chains are long enough."""

    def holds(random: np.random.Generator) -> bool:
        chains = np.repeat(random.normal(3, 1, 20), 10) + random.normal(0, 0.1, 200)
        found = of_means(chains, np.repeat(np.arange(20), 10), FEW)
        return found.low <= 3 <= found.high

    require_coverage(misses(holds, 200), 200)


def test_coverage_of_a_set_statistic() -> None:
    """Unique share of 60 draws from 40 equally likely sentences."""
    truth = 40 * (1 - (1 - 1 / 40) ** 60) / 60

    def holds(random: np.random.Generator) -> bool:
        texts = random.integers(0, 40, 60).tolist()
        found = of_set(lambda keep: unique_share(texts, keep), range(60), FEW)
        return found.low <= truth <= found.high

    assert misses(holds, 100) <= 100 * 0.05 + 4 * math.sqrt(100 * 0.05 * 0.95)


def test_halves_have_the_variance_of_a_mean() -> None:
    """The half-interval of a mean is that of the normal approximation, for an odd number of sentences too."""
    values = np.random.default_rng(2).normal(0.5, 0.02, 301)
    many = Resampling(halves=4000)
    found = of_set(lambda keep: float(values[keep].mean()), range(301), many)
    expected = 2 * 1.96 * values.std(ddof=1) / math.sqrt(301)
    assert found.high - found.low == pytest.approx(expected, rel=4 * 1.6 / math.sqrt(4000))


def test_no_interval_from_too_little() -> None:
    assert math.isnan(of_means([1.0, 2.0], [0, 0], FEW).low)
    assert math.isnan(of_set(lambda keep: 0.5, [0, 1, 2], FEW).low)
    assert math.isnan(of_sums([0.0, 0.0], [0, 0], [0, 1], FEW).value)


def test_reproducible_and_seeded() -> None:
    values = np.arange(30.0)
    assert of_means(values, range(30), FEW) == of_means(values, range(30), FEW)
    assert of_means(values, range(30), FEW) != of_means(values, range(30), Resampling(200, seed=1))


def test_settings_out_of_range() -> None:
    with pytest.raises(InputError, match="a confidence of 95 is out of range"):
        Resampling(confidence=95)
    with pytest.raises(InputError, match="5 resamples are too few"):
        Resampling(resamples=5)
