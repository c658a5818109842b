"""What the raters said: mean of each system, agreement of the raters, paired tests between systems.

mean         of a system's sentences, each the mean over raters; interval by resampling blocks
agreement    Krippendorff's alpha for ordinal answers, by the package krippendorff
paired test  differences within blocks, each the mean over raters; exact or random sign flips
             (`scipy.stats.permutation_test`), p values also adjusted for the number of pairs by Holm (1979)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from maskropolis.evaluation.intervals import Estimate, Resampling, of_means
from maskropolis.evaluation.rating.blinding import Design
from maskropolis.evaluation.rating.sheets import Answers


@dataclass(frozen=True)
class Comparison:
    """Mean difference first − second; `p` two-sided, `holm` adjusted over all pairs of the same question."""

    question: str
    first: str
    second: str
    difference: Estimate
    p: float
    holm: float


@dataclass(frozen=True)
class Ratings:
    """Results of a study.

    Attributes:
        means: for each question, the mean answer of each system.
        alpha: Krippendorff's alpha of each question; NaN with one rater, or where all answers are the same.
        comparisons: all pairs of systems.
    """

    signature: str
    raters: list[int]
    blocks: int
    means: dict[str, dict[str, Estimate]]
    alpha: dict[str, float]
    comparisons: list[Comparison]

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`; NaN is null."""
        cleaned: dict[str, Any] = _finite(asdict(self))
        return cleaned


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def ratings(study: Design, answers: Sequence[Answers], resampling: Resampling | None = None) -> Ratings:
    """Everything that complete sheets (see `read_answers`) say."""
    from maskropolis import __version__

    resampling = resampling or Resampling()
    blocks = 1 + max(item.block for item in study.items)
    means: dict[str, dict[str, Estimate]] = {}
    comparisons: list[Comparison] = []
    for question in study.questions:
        table = {system: _by_block(study, answers, question.name, system) for system in study.systems}
        means[question.name] = {name: of_means(row, range(blocks), resampling) for name, row in table.items()}
        comparisons += _compared(question.name, table, resampling)
    parts = [
        "maskropolis|rate", f"scale:1-{study.scale}", f"seed:{study.seed}", f"blocks:{blocks}",
        f"raters:{len(answers)} of {len(study.orders)}", f"aligned:{'yes' if study.aligned else 'no'}",
        *(f"{name}:{source['sha256'][:12]}" for name, source in study.sources.items()),
        resampling.signature, f"alpha:ordinal|version:{__version__}",
    ]  # fmt: skip
    return Ratings(
        signature="|".join(parts),
        raters=[one.rater for one in answers],
        blocks=blocks,
        means=means,
        alpha={question.name: _alpha(study, answers, question.name) for question in study.questions},
        comparisons=comparisons,
    )


def _by_block(study: Design, answers: Sequence[Answers], question: str, system: str) -> np.ndarray:
    """[B] mean over the raters of the answers to the sentence of `system` in each block."""
    codes = [item.code for item in study.items if item.system == system]
    means: np.ndarray = np.array([[one.values[question][code] for code in codes] for one in answers]).mean(0)
    return means


def _alpha(study: Design, answers: Sequence[Answers], question: str) -> float:
    import krippendorff

    table = [[one.values[question][item.code] for item in study.items] for one in answers]
    if len(table) < 2 or len(set(itertools.chain.from_iterable(table))) < 2:
        return math.nan
    return float(krippendorff.alpha(reliability_data=table, level_of_measurement="ordinal"))


def _compared(question: str, table: dict[str, np.ndarray], resampling: Resampling) -> list[Comparison]:
    pairs = list(itertools.combinations(table, 2))
    differences = [table[first] - table[second] for first, second in pairs]
    p = [sign_flip_test(one, resampling) for one in differences]
    blocks = [range(len(one)) for one in differences]
    return [
        Comparison(question, first, second, of_means(one, block, resampling), raw, adjusted)
        for (first, second), one, block, raw, adjusted in zip(pairs, differences, blocks, p, holm(p), strict=True)
    ]


def sign_flip_test(differences: np.ndarray, resampling: Resampling) -> float:
    """Two-sided p value of mean difference 0 for [N] paired differences, whose signs are exchangeable under it."""
    from scipy.stats import permutation_test

    if len(differences) < 2:
        return math.nan
    found = permutation_test(
        (differences,), lambda values, axis: values.mean(axis), permutation_type="samples", vectorized=True,
        n_resamples=max(9999, resampling.resamples), rng=resampling.seed, batch=1000,
    )  # fmt: skip
    return float(found.pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """p values adjusted so that the chance of any false rejection keeps its level. Holm (1979)."""
    order = sorted(range(len(p)), key=lambda index: p[index])
    adjusted, most = [0.0] * len(p), 0.0
    for rank, index in enumerate(order):
        most = max(most, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = most
    return adjusted
