"""What is measured of a set of samples: judge, energies, diversity, convergence; every interval by whole chains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from maskropolis.convergence.diagnostics import measure
from maskropolis.evaluation.evaluating import Questions, evaluate
from maskropolis.evaluation.intervals import Estimate, Resampling, of_means, of_sums
from maskropolis.evaluation.judging.judge import Judge, Judgement
from maskropolis.evaluation.systems import System
from maskropolis.models.forward.rows import batches, single_mask_rows
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, RAW

RESAMPLING = Resampling(halves=20)  # self-BLEU of every half takes long
DIVERSITY = ("distinct_1", "distinct_2", "distinct_3", "self_bleu", "unique", "near_duplicates", "repetition_1")


@dataclass(frozen=True, eq=False)
class Texts:
    """N texts, the chain that each came from, and what the judge says of each."""

    texts: tuple[str, ...]
    chains: tuple[int, ...]
    judged: tuple[Judgement, ...]

    @classmethod
    def of(cls, texts: Sequence[str], chains: Sequence[int], judge: Judge) -> Texts:
        """Equal texts are judged once; a text without anything to judge gets no tokens."""
        different = [text for text in dict.fromkeys(texts) if text.strip()]
        known = dict(zip(different, judge.judge(different), strict=True))
        return cls(tuple(texts), tuple(chains), tuple(known.get(text) or Judgement(text, (), 0) for text in texts))

    @property
    def tokens(self) -> list[int]:
        return [one.tokens for one in self.judged]

    @property
    def loss(self) -> list[float]:
        """[N] −log p of each text, in nats."""
        return [-one.log_likelihood for one in self.judged]

    def perplexity(self) -> dict[str, float | None]:
        return plain(of_sums(self.loss, self.tokens, self.chains, RESAMPLING, np.exp))

    def word_perplexity(self) -> dict[str, float | None]:
        words = [one.words for one in self.judged]
        return plain(of_sums(self.loss, words, self.chains, RESAMPLING, np.exp))

    def by_chain(self) -> list[float]:
        """log-perplexity of each chain, for comparisons."""
        loss, tokens = (np.bincount(self.chains, np.array(values, dtype=float)) for values in (self.loss, self.tokens))
        return [round(float(value), 5) for value in loss / np.maximum(tokens, 1)]

    def diversity(self) -> dict[str, Any]:
        found = evaluate([System("samples", self.texts, self.chains)], Questions(resampling=RESAMPLING)).results[0]
        return {name: plain(found.measures[name]) for name in DIVERSITY}


def plain(estimate: Estimate) -> dict[str, float | None]:
    """value, low, high to five digits; null where there is none."""
    return {
        key: float(f"{value:.5g}") if math.isfinite(value := getattr(estimate, key)) else None
        for key in ("value", "low", "high")
    }


def both_energies(model: Any, sequences: Sequences) -> tuple[np.ndarray, np.ndarray]:
    """([N] norm, [N] raw) from the same model rows; equal sequences are evaluated once."""
    different, back = torch.unique(sequences.tokens, dim=0, return_inverse=True)
    some = Sequences(different, sequences.free[: len(different)], sequences.attention[: len(different)])
    rows, found = single_mask_rows(some), torch.zeros(2, len(some), dtype=torch.float64)
    for index, logits in batches(model, some, rows):
        chain, at = rows.chain[index], rows.asked[index, 0]
        for row, energy in enumerate((NORM, RAW)):
            found[row].index_add_(0, chain, energy.term(logits[:, 0], some.tokens[chain, at]))
    norm, raw = found[:, back].numpy()
    return norm, raw


def energies(model: Any, sequences: Sequences, chains: Sequence[int]) -> dict[str, Any]:
    """Both energies a token with their intervals, and the norm energy of each state."""
    norm, raw = both_energies(model, sequences)
    free = int(sequences.free[0].sum())
    return {
        "norm_per_token": plain(of_means(norm / free, chains, RESAMPLING)),
        "raw_per_token": plain(of_means(raw / free, chains, RESAMPLING)),
        "states": len(norm),
        "norm": [round(value, 4) for value in norm.tolist()],
        "raw": [round(value, 4) for value in raw.tolist()],
    }


def convergence(energy: np.ndarray, source: str) -> dict[str, Any]:
    """R-hat and bulk ESS of the energies [C, D]; the standard error of log ESS by leaving out each chain in turn."""
    if energy.shape[1] < 4:
        return {"source": source, "draws": energy.shape[1], "r_hat": None, "ess": None, "log_ess_error": None}
    found = measure("energy", energy)
    each = [measure("energy", np.delete(energy, chain, axis=0)).ess_bulk for chain in range(len(energy))]
    error = jackknife_error(np.log(each)) if len(energy) > 2 and np.isfinite(each).all() else math.nan
    numbers = {"r_hat": found.r_hat, "ess": found.ess_bulk, "log_ess_error": error}
    kept = {key: round(value, 5) if math.isfinite(value) else None for key, value in numbers.items()}
    return {"source": source, "draws": energy.shape[1], **kept}


def jackknife_error(values: np.ndarray) -> float:
    """Standard error of a statistic from its [C] values with one chain left out. Efron & Stein (1981)."""
    count = len(values)
    return float(np.sqrt((count - 1) / count * ((values - values.mean()) ** 2).sum()))
