"""What the paper claims of translation, looked for in the results and reported as found, either way.

Two systems are compared by sacrebleu's paired bootstrap of tokenised BLEU (Koehn 2004) on the sentences that both have
translated, their rates of acceptance by Welch's t over portions of the test set, and energy with BLEU by Spearman's
rank correlation over the states of chains on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from scipy.stats import spearmanr, ttest_ind

Entry = dict[str, Any]
Texts = Callable[[Entry], list[str]]
RESAMPLES, LEVEL = 1000, 0.05
MP, GIBBS = "Mask-Predict 10", "Gibbs from masks, annealed"
RAW_MP, NORM_MP = "MH raw from mask-predict", "MH norm from mask-predict"
RAW_GREEDY, NORM_GREEDY = "MH raw from greedy", "MH norm from greedy"
BLEU_CLAIMS = (
    ("Metropolis–Hastings is above Mask-Predict", NORM_MP, MP),
    ("Metropolis–Hastings is above Mask-Predict", RAW_MP, MP),
    ("Mask-Predict is above Gibbs", MP, GIBBS),
    ("Mask-Predict is above Gibbs", MP, "Gibbs from masks"),
    ("raw is at least norm", RAW_MP, NORM_MP),
    ("raw is at least norm", RAW_GREEDY, NORM_GREEDY),
)
ACCEPTANCE_CLAIMS = (
    ("raw accepts more often", RAW_MP, NORM_MP),
    ("raw accepts more often", RAW_GREEDY, NORM_GREEDY),
)


def comparisons(entries: list[Entry], texts: Texts, references: Callable[[str], list[str]]) -> list[Entry]:
    """Every claim with its figures and verdict: holds, opposite or undecided.

    `texts(entry)` are the translations of a system, `references(pair)` those of a test set.
    """
    return [
        *_by_bleu(entries, texts, references),
        *_by_acceptance(entries),
        *_energy_and_bleu(entries),
    ]


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
    return float(system.score - baseline.score), float(system.p_value)  # type: ignore[union-attr]


def _by_acceptance(entries: list[Entry]) -> Iterator[Entry]:
    for claim, first, second in ACCEPTANCE_CLAIMS:
        for pair, one, other in _pairs(entries, first, second):
            a, b = one["acceptance_by_portion"], other["acceptance_by_portion"]
            p = float(ttest_ind(a, b, equal_var=False).pvalue) if min(len(a), len(b)) > 1 else 1.0
            difference = one["acceptance"] - other["acceptance"]
            yield _entry(claim, pair, first, second, "acceptance, difference", difference, p)


def _energy_and_bleu(entries: list[Entry]) -> Iterator[Entry]:
    """The claim foretells a negative correlation: lower energy, more BLEU."""
    for entry in entries:
        points = entry.get("path", [])
        if len(points) > 2:
            found = spearmanr([p["energy"] for p in points], [p["bleu"] for p in points])
            rho = float(found.statistic)
            made = _entry(
                "low energy goes with high BLEU", entry["pair"], entry["system"], "", "rank correlation over sweeps",
                -rho, float(found.pvalue),
            )  # fmt: skip
            yield made | {"value": round(rho, 4)}


def _entry(claim: str, pair: str, first: str, second: str, measure: str, value: float, p: float) -> Entry:
    verdict = "undecided" if not p < LEVEL else "holds" if value > 0 else "opposite"
    return {
        "claim": claim, "pair": pair, "first": first, "second": second, "measure": measure,
        "value": round(value, 4), "p": float(f"{p:.3g}"), "verdict": verdict,
    }  # fmt: skip
