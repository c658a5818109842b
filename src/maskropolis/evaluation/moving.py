"""How a set of chains moves, sweep by sweep: energy, judge perplexity and diversity of where they all are.

A fast generator is off its target; exact chains that start from its samples move towards theirs. What that changes is
seen in three numbers of the set of states after each sweep, sweep 0 being the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskropolis.evaluation.diversity import GramCounts, split_words
from maskropolis.evaluation.judging.judge import Judge, perplexity


@dataclass(frozen=True)
class Standing:
    """Where C chains are after a sweep.

    Attributes:
        energy: mean over the chains. error: its standard error; NaN for a single chain.
        perplexity: of all texts under the judge, per token; NaN without a judge or where there is no text to judge.
        distinct: distinct-2, and self_bleu: 0 to 100, of the set; NaN where there are too few words or texts.
    """

    energy: float
    error: float
    perplexity: float
    distinct: float
    self_bleu: float

    @classmethod
    def of(cls, texts: Sequence[str], energies: Sequence[float], judge: Judge | None = None) -> Standing:
        """Raises `InputError` for a text that is too long for the judge."""
        energy = np.asarray(energies, dtype=float)
        error = float(energy.std(ddof=1)) / math.sqrt(len(energy)) if len(energy) > 1 else math.nan
        counts, every = GramCounts.of(split_words(texts)), np.ones(len(texts), dtype=bool)
        said = [text for text in texts if text.strip()]
        judged = math.nan if judge is None or not said else perplexity(judge.judge(said))
        return cls(float(energy.mean()), error, judged, counts.distinct(2, every), counts.self_bleu(every))
