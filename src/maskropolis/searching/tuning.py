"""The weight of an energy beside given scores: exact search along one line for the highest corpus BLEU.

Each sentence's candidate with the highest  s + w·f  is taken. As w grows from 0 the choice changes only where two lines
cross, so the corpus is evaluated once between any two crossings. Och (2003), minimum error rate training, for one
feature.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU

from maskropolis.errors import InputError

_BLEU = BLEU(lowercase=True, tokenize="none", effective_order=False)


@dataclass(frozen=True)
class Tuned:
    """`weight` of the feature, and the BLEU that it reaches; `before`, `alone`: BLEU by the scores, by the feature."""

    weight: float
    bleu: float
    before: float
    alone: float


def tune(
    texts: Sequence[Sequence[str]],
    scores: Sequence[Sequence[float]],
    features: Sequence[Sequence[float]],
    references: Sequence[str],
) -> Tuned:
    """The weight w ≥ 0 for  score + w·feature  on a development set; one list of candidates a sentence.

    Of equally good weights the middle of the widest interval. Raises `InputError` if there is nothing to tune on.
    """
    if not references or len(references) != len(texts):
        raise InputError(f"{len(texts)} lists of candidates for {len(references)} references; expected one each")
    counted = [
        [_counts(text, reference) for text in candidates]
        for candidates, reference in zip(texts, references, strict=True)
    ]
    envelopes = [_envelope(np.asarray(s), np.asarray(f)) for s, f in zip(scores, features, strict=True)]
    changes = sorted(
        (weight, sentence, before, after)
        for sentence, steps in enumerate(envelopes)
        for (_, before), (weight, after) in itertools.pairwise(steps)
    )
    total = sum((counted[i][steps[0][1]] for i, steps in enumerate(envelopes)), np.zeros_like(counted[0][0]))
    edges, values = [0.0], [_bleu(total)]
    for weight, sentence, old, new in changes:
        total = total - counted[sentence][old] + counted[sentence][new]
        if weight == edges[-1]:
            values[-1] = _bleu(total)
        else:
            edges.append(weight)
            values.append(_bleu(total))
    best = _widest(edges, values)
    alone = sum((counted[i][steps[-1][1]] for i, steps in enumerate(envelopes)), np.zeros_like(counted[0][0]))
    return Tuned(best[0], best[1], values[0], _bleu(alone))


def _counts(text: str, reference: str) -> np.ndarray:
    """[10] n-gram matches and totals, n = 1 … 4, and the two lengths."""
    found = _BLEU.sentence_score(text, [reference])
    return np.array([*found.counts, *found.totals, found.sys_len, found.ref_len], dtype=np.float64)


def _bleu(total: np.ndarray) -> float:
    counts, totals = [int(x) for x in total[:4]], [int(x) for x in total[4:8]]
    return float(BLEU.compute_bleu(counts, totals, int(total[8]), int(total[9]), smooth_method="exp").score)


def _envelope(scores: np.ndarray, features: np.ndarray) -> list[tuple[float, int]]:
    """[(w, candidate)]: from w on, the candidate has the highest score + w·feature; starts at w = 0."""
    current = int(np.lexsort((-features, -scores))[0])
    steps, weight = [(0.0, current)], 0.0
    while True:
        steeper = np.flatnonzero(features > features[current])
        if not steeper.size:
            return steps
        crossing = (scores[current] - scores[steeper]) / (features[steeper] - features[current])
        order = np.lexsort((-features[steeper], crossing))
        weight, current = max(weight, float(crossing[order[0]])), int(steeper[order[0]])
        steps.append((weight, current))


def _widest(edges: list[float], values: list[float]) -> tuple[float, float]:
    """(middle, value) of the widest interval of the highest value; beyond the last edge, twice that edge."""
    most = max(values)
    ends = [*edges[1:], 2 * edges[-1] + 1.0]
    widths = [(end - edge if value == most else -1.0) for edge, end, value in zip(edges, ends, values, strict=True)]
    place = int(np.argmax(widths))
    return (edges[place] + ends[place]) / 2, most
