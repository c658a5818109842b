"""Confidence intervals by resampling: of sums over sentences, and of statistics of a set of sentences.

    sums   θ = g(Σ a_i / Σ b_i): percentile bootstrap (`scipy.stats.bootstrap`)
    sets   θ depends on which sentences there are together (distinct-n, self-BLEU). Drawing with replacement would add
           duplicates that the samples lack, so random halves are drawn without replacement: θ_half − θ has the variance
           of θ (Shao & Wu 1989). The interval is θ minus the quantiles of θ_half − mean(θ_half).

The states that one chain leaves are not independent. Sentences of the same group (chain) are drawn together or not at
all; with one group there is no interval, and it is NaN.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maskropolis.errors import InputError

_BATCH = 1 << 22
"""Numbers resampled at a time: bounded memory."""


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval; low and high are NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Resampling:
    """How intervals are made. `halves` are drawn for statistics of sets, which cost more than sums."""

    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0
    halves: int = 200

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise InputError(f"a confidence of {self.confidence:g} is out of range; expected between 0 and 1")
        if self.resamples < 20 or self.halves < 20:
            raise InputError(f"{min(self.resamples, self.halves)} resamples are too few; expected at least 20")

    @property
    def signature(self) -> str:
        return f"ci:{self.confidence:.4g}(bootstrap:{self.resamples},halves:{self.halves},seed:{self.seed})"

    @property
    def tails(self) -> tuple[float, float]:
        return (1 - self.confidence) / 2, (1 + self.confidence) / 2


def identity(value: Any) -> Any:
    return value


def of_sums(
    numerator: Sequence[float] | np.ndarray,
    denominator: Sequence[float] | np.ndarray,
    groups: Sequence[int] | np.ndarray,
    resampling: Resampling,
    transform: Callable[[Any], Any] = identity,
) -> Estimate:
    """`transform`(Σ numerator / Σ denominator) of [N] sentences; NaN where the denominator is 0."""
    from scipy.stats import bootstrap

    _, group = np.unique(np.asarray(groups), return_inverse=True)
    above = np.bincount(group, np.asarray(numerator, dtype=float))
    below = np.bincount(group, np.asarray(denominator, dtype=float))

    def statistic(a: np.ndarray, b: np.ndarray, axis: int = -1) -> Any:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return transform(a.sum(axis) / b.sum(axis))

    value = float(statistic(above, below))
    if len(above) < 2 or not math.isfinite(value):
        return Estimate(value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scipy where no interval exists: NaN says it
        found = bootstrap(
            (above, below), statistic, paired=True, vectorized=True, method="percentile", rng=resampling.seed,
            n_resamples=resampling.resamples, confidence_level=resampling.confidence,
            batch=max(1, _BATCH // len(above)),
        ).confidence_interval  # fmt: skip
    return Estimate(value, float(found.low), float(found.high))


def of_means(
    values: Sequence[float] | np.ndarray, groups: Sequence[int] | np.ndarray, resampling: Resampling
) -> Estimate:
    """The mean of [N] values."""
    return of_sums(values, np.ones(len(values)), groups, resampling)


def of_set(
    statistic: Callable[[np.ndarray], float],
    groups: Sequence[int] | np.ndarray,
    resampling: Resampling,
    most: float = 1.0,
) -> Estimate:
    """`statistic`(keep [N] bool) of the kept sentences, first of all of them, then of random halves of the groups.

    The statistic lies between 0 and `most`, to which the interval is cut. Below four groups there is none.
    """
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    count = int(group.max()) + 1 if len(group) else 0
    value = float(statistic(np.ones(len(group), dtype=bool)))
    if count < 4 or not math.isfinite(value):
        return Estimate(value)
    random = np.random.default_rng(resampling.seed)
    found = np.array([statistic(_half(random, count)[group]) for _ in range(resampling.halves)])
    deviations = (found - found.mean()) * math.sqrt((count // 2) / (count - count // 2))
    low, high = np.quantile(deviations, resampling.tails)
    return Estimate(value, max(0.0, value - float(high)), min(most, value - float(low)))


def _half(random: np.random.Generator, count: int) -> np.ndarray:
    keep = np.zeros(count, dtype=bool)
    keep[random.permutation(count)[: count // 2]] = True
    return keep
