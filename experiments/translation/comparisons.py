"""What the paper claims of translation, looked for in the results and reported as found, either way.

Two systems are compared by sacrebleu's paired bootstrap of tokenised BLEU (Koehn 2004) on the sentences that both have
translated, their rates of acceptance by Welch's t over portions of the test set. Metropolis–Hastings is compared with
Mask-Predict as published, and with the choice of a length by energy alone (no sweeps). Whether low energy goes with
high BLEU is asked of the chains on their way: the same bootstrap of the texts after the last sweep against those at the
start, beside Spearman's rank correlation over sweeps, which has no p of its own since sweeps are not independent.
Verdicts hold for all comparisons of a pair together: their p are corrected as in Holm (1979).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from scipy.stats import spearmanr, ttest_ind

Entry = dict[str, Any]
Texts = Callable[[Entry], list[str]]
Ends = Callable[[Entry], tuple[list[str], list[str]]]
RESAMPLES, LEVEL = 1000, 0.05
MP, GIBBS = "Mask-Predict 10", "Gibbs from masks, annealed"
RAW_MP, NORM_MP = "MH raw from mask-predict", "MH norm from mask-predict"
RAW_START, NORM_START = "Mask-Predict 10, best by raw", "Mask-Predict 10, best by norm"
BEST, BEST_START = "MH raw from mask-predict, joint", "Mask-Predict 10, best by raw, joint"
RAW_GREEDY, NORM_GREEDY = "MH raw from greedy", "MH norm from greedy"
BLEU_CLAIMS = (
    ("Metropolis–Hastings is above Mask-Predict", NORM_MP, MP),
    ("Metropolis–Hastings is above Mask-Predict", RAW_MP, MP),
    ("Metropolis–Hastings is above Mask-Predict", NORM_MP, NORM_START),
    ("Metropolis–Hastings is above Mask-Predict", RAW_MP, RAW_START),
    ("Metropolis–Hastings is above Mask-Predict", BEST, MP),
    ("Metropolis–Hastings is above Mask-Predict", BEST, BEST_START),
    ("Mask-Predict is above Gibbs", MP, GIBBS),
    ("Mask-Predict is above Gibbs", MP, "Gibbs from masks"),
    ("raw is at least norm", RAW_MP, NORM_MP),
    ("raw is at least norm", RAW_GREEDY, NORM_GREEDY),
)
ACCEPTANCE_CLAIMS = (
    ("raw accepts more often", RAW_MP, NORM_MP),
    ("raw accepts more often", RAW_GREEDY, NORM_GREEDY),
)


def comparisons(entries: list[Entry], texts: Texts, ends: Ends, references: Callable[[str], list[str]]) -> list[Entry]:
    """Every claim with its figures and verdict: holds, opposite or undecided.

    `texts(entry)` are the translations of a system, `ends(entry)` those at the start and after the last sweep of a
    system with a path, `references(pair)` those of a test set.
    """
    found = [
        *_by_bleu(entries, texts, references),
        *_by_acceptance(entries),
        *_energy_and_bleu(entries, ends, references),
    ]
    for pair in {one["pair"] for one in found}:
        decide([one for one in found if one["pair"] == pair])
    return found


def decide(claims: list[Entry]) -> None:
    """Puts the corrected p and the verdict into each of the claims of a pair (Holm 1979)."""
    highest = 0.0
    for rank, claim in enumerate(sorted(claims, key=lambda one: one["p"])):
        highest = max(highest, min(1.0, claim["p"] * (len(claims) - rank)))
        claim["p_corrected"] = float(f"{highest:.3g}")
        sign = claim.pop("sign")
        claim["verdict"] = "undecided" if not highest < LEVEL else "holds" if sign > 0 else "opposite"


def _pairs(entries: list[Entry], first: str, second: str) -> Iterator[tuple[str, Entry, Entry]]:
    main = {(entry["pair"], entry["system"]): entry for entry in entries if entry["table"] == "main"}
    for pair, name in main:
        if name == first and (pair, second) in main:
            yield pair, main[pair, first], main[pair, second]


def _by_bleu(entries: list[Entry], texts: Texts, references: Callable[[str], list[str]]) -> Iterator[Entry]:
    for claim, first, second in BLEU_CLAIMS:
        for pair, better, other in _pairs(entries, first, second):
            difference, p = paired_bootstrap(texts(better), texts(other), references(pair))
            yield _entry(claim, pair, first, second, "BLEU, difference", difference, p)


def paired_bootstrap(first: list[str], second: list[str], references: list[str]) -> tuple[float, float]:
    """(BLEU of `first` − that of `second`, p of no difference), tokenised and lower-cased."""
    if first == second:
        return 0.0, 1.0
    metric = BLEU(lowercase=True, tokenize="none", references=[references])
    systems = [("baseline", second), ("system", first)]
    test = PairedTest(systems, {"BLEU": metric}, None, test_type="bs", n_samples=RESAMPLES)
    baseline, system = test()[1]["BLEU"]
    return float(system.score - baseline.score), float(system.p_value)


def _by_acceptance(entries: list[Entry]) -> Iterator[Entry]:
    for claim, first, second in ACCEPTANCE_CLAIMS:
        for pair, one, other in _pairs(entries, first, second):
            a, b = one["acceptance_by_portion"], other["acceptance_by_portion"]
            p = float(ttest_ind(a, b, equal_var=False).pvalue) if min(len(a), len(b)) > 1 else 1.0
            difference = one["acceptance"] - other["acceptance"]
            yield _entry(claim, pair, first, second, "acceptance, difference", difference, p)


def _energy_and_bleu(entries: list[Entry], ends: Ends, references: Callable[[str], list[str]]) -> Iterator[Entry]:
    """If energy fell on the way, BLEU should have risen; the other way round otherwise."""
    for entry in entries:
        points = entry.get("path", [])
        if len(points) < 2:
            continue
        energy, bleu = ([point[key] for point in points] for key in ("energy", "bleu"))
        first, last = ends(entry)
        difference, p = paired_bootstrap(last, first, references(entry["pair"])[: len(last)])
        foretold = difference if energy[-1] < energy[0] else -difference
        rho = float(spearmanr(energy, bleu).statistic) if min(np.ptp(energy), np.ptp(bleu)) > 0 else None
        made = _entry(
            "low energy goes with high BLEU",
            entry["pair"],
            entry["system"],
            "",
            "BLEU, last sweep − start",
            foretold,
            p,
        )
        yield made | {
            "value": round(difference, 4),
            "energy_change": round(energy[-1] - energy[0], 4),
            "rank_correlation": None if rho is None else round(rho, 4),
        }


def _entry(claim: str, pair: str, first: str, second: str, measure: str, value: float, p: float) -> Entry:
    """`value` above 0 is for the claim; `decide` adds the verdict."""
    return {
        "claim": claim, "pair": pair, "first": first, "second": second, "measure": measure,
        "value": round(value, 4), "p": float(f"{p:.3g}"), "sign": value,
    }  # fmt: skip
