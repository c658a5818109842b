"""Accuracy of scores on minimal pairs, with Wilson intervals, and what two scores disagree on.

A pair is right when the good sentence scores better; equal scores are wrong, since nothing was preferred. Two scores
are compared on the same pairs by McNemar's exact test: of the pairs that one alone gets right, is half as likely?
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from scipy.stats import binomtest

LOWER_IS_BETTER = frozenset({"pppl", "raw", "norm"})


def right(metric: str, good: Sequence[float], bad: Sequence[float]) -> list[bool]:
    """Whether each good sentence scores strictly better than its bad one."""
    sign = -1 if metric in LOWER_IS_BETTER else 1
    return [sign * a > sign * b for a, b in zip(good, bad, strict=True)]


def accuracy(verdicts: Sequence[bool], level: float = 0.95) -> dict[str, Any]:
    """Share that is right, with the Wilson interval: `accuracy`, `low`, `high`, `right`, `pairs`."""
    found = binomtest(sum(verdicts), len(verdicts))
    interval = found.proportion_ci(confidence_level=level, method="wilson")
    return {
        "accuracy": round(found.statistic, 4),
        "low": round(float(interval.low), 4),
        "high": round(float(interval.high), 4),
        "right": sum(verdicts),
        "pairs": len(verdicts),
    }


def disagreements(verdicts: dict[str, list[bool]]) -> list[dict[str, Any]]:
    """For every two metrics: pairs that one alone gets right, and the p-value of McNemar's exact test."""
    found = []
    for first, second in combinations(verdicts, 2):
        only = [(a, b) for a, b in zip(verdicts[first], verdicts[second], strict=True) if a != b]
        wins = sum(a for a, _ in only)
        p = binomtest(wins, len(only)).pvalue if only else 1.0
        found.append(
            {"first": first, "second": second, "only_first": wins, "only_second": len(only) - wins, "p": round(p, 5)}
        )
    return found
