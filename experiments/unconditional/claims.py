"""The paper's claims, looked for cell by cell: a difference, its 95% interval over chains, and what it says.

Chains are independent, so two systems are compared by Welch's t interval of one number a chain. ESS is one number for
all chains together; its interval is that of the log-ratio, with jackknife errors over chains. The ESS of chains that
have not met means nothing, so with an R-hat of `SETTLED` or more nothing is decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import ttest_ind

Entry = dict[str, Any]
SETTLED = 1.1


def claims(cells: list[Entry]) -> list[Entry]:
    """Every claim with its comparisons, and in how many cells it holds, fails, or cannot be decided."""
    table = {(c["length"], c["start"], c["temperature"], c["system"]): c for c in cells}
    made = []
    for words, first, second, measure, compare in _CLAIMS:
        found = list(_compared(table, first, second, measure, compare))
        if found:
            verdicts = [one["verdict"] for one in found]
            counts = {verdict: verdicts.count(verdict) for verdict in ("holds", "opposite", "undecided")}
            made.append({"claim": words, "measure": measure, **counts, "cells": found})
    return made


def _compared(table: dict[Any, Entry], first: str, second: str, measure: str, compare: Callable) -> Iterator[Entry]:
    for length, start, temperature, system in table:
        other = table.get((length, start, temperature, second))
        if system == first and other is not None:
            found = compare(table[length, start, temperature, first], other)
            if found is not None:
                yield {"length": length, "start": start, "temperature": temperature} | found


def difference(first: list[float], second: list[float], holds: int, ratio: bool = False) -> Entry | None:
    """mean(first) − mean(second) with Welch's interval, as a ratio of exponentials if asked; `holds`: the sign that the
    claim foretells. None where a chain has no value."""
    a, b = np.array(first, dtype=float), np.array(second, dtype=float)
    if len(a) < 2 or len(b) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    value = float(a.mean() - b.mean())
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        low = high = value
    else:
        interval = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
        low, high = float(interval.low), float(interval.high)
    return _entry(value, low, high, holds, ratio)


def _entry(value: float, low: float, high: float, holds: int, ratio: bool) -> Entry:
    verdict = "undecided"
    if low > 0 or high < 0:
        verdict = "holds" if (low > 0) == (holds > 0) else "opposite"
    shown = [math.exp(number) if ratio else number for number in (value, low, high)]
    return dict(zip(("value", "low", "high"), (float(f"{x:.5g}") for x in shown), strict=True)) | {"verdict": verdict}


def _judge(first: Entry, second: Entry) -> Entry | None:
    return difference(first["judge"]["log_by_chain"], second["judge"]["log_by_chain"], holds=-1, ratio=True)


def _acceptance(first: Entry, second: Entry) -> Entry | None:
    return difference(first["acceptance_by_chain"], second["acceptance_by_chain"], holds=1)


def _ess_per_second(first: Entry, second: Entry) -> Entry | None:
    found = [one["convergence"] for one in (first, second)]
    if any(not one.get("ess_per_second") or one["log_ess_error"] is None for one in found):
        return None
    settled = all(one["r_hat"] < SETTLED for one in found)
    value = math.log(found[0]["ess_per_second"] / found[1]["ess_per_second"])
    half = 1.96 * math.hypot(found[0]["log_ess_error"], found[1]["log_ess_error"])
    made = _entry(value, value - half, value + half, holds=1, ratio=True)
    return made if settled else made | {"verdict": "undecided"}


def _changed_per_second(first: Entry, second: Entry) -> Entry | None:
    each = [[count / one["processor_seconds"] for count in one["changed_by_chain"]] for one in (first, second)]
    return difference(each[0], each[1], holds=1)


def _last_energy(kind: str) -> Callable[[Entry, Entry], Entry | None]:
    def compare(first: Entry, second: Entry) -> Entry | None:
        each = [[v / one["length"] for v in one["energies"][f"last_{kind}_by_chain"]] for one in (first, second)]
        return difference(each[0], each[1], holds=-1)

    return compare


_RATIO, _ESS, _TOKENS = "ratio of judge perplexities", "ratio of ESS per processor second", "tokens changed a second"
_CLAIMS: list[tuple[str, str, str, str, Callable[[Entry, Entry], Entry | None]]] = [
    ("MH norm is below Gibbs in judge perplexity", "MH norm", "Gibbs", _RATIO, _judge),
    ("MH raw is below Gibbs in judge perplexity", "MH raw", "Gibbs", _RATIO, _judge),
    ("raw accepts more often than norm", "MH raw", "MH norm", "difference of acceptance rates", _acceptance),
    ("blocks of 2 mix faster per unit of time", "MH norm, blocks of 2", "MH norm", _ESS, _ess_per_second),
    ("blocks of 4 mix faster per unit of time", "MH norm, blocks of 4", "MH norm", _ESS, _ess_per_second),
    ("blocks of 2 change more tokens", "MH norm, blocks of 2", "MH norm", _TOKENS, _changed_per_second),
    ("blocks of 4 change more tokens", "MH norm, blocks of 4", "MH norm", _TOKENS, _changed_per_second),
    ("annealing lowers the norm energy", "MH norm, annealed", "MH norm", "nats a token, last states",
     _last_energy("norm")),
    ("annealing lowers the raw energy", "MH raw, annealed", "MH raw", "logits a token, last states",
     _last_energy("raw")),
]  # fmt: skip
