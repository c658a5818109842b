"""How well a masked LM predicts held-out text: perplexity of masked tokens, at a given rate or one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from maskropolis.training.data.batches import Batch, stream
from maskropolis.training.masked.prediction import Predictor, losses
from maskropolis.training.objectives import Corrupted, Objective, Vocabulary


@dataclass(frozen=True)
class Measurement:
    """`loss`: mean nats per predicted token; `positions`: how many; `error`: standard error of the loss, over rows."""

    loss: float
    positions: int
    error: float

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))


Autocast = Callable[[], AbstractContextManager]


@torch.inference_mode()
def measure(
    predictor: Predictor,
    batch: Batch,
    objective: Objective,
    vocabulary: Vocabulary,
    seed: int = 0,
    rows_at_a_time: int = 32,
    autocast: Autocast = nullcontext,
) -> Measurement:
    """Loss on the rows of `batch`, masks drawn once from `seed`: the same rows and seed give the same masks."""
    device = next(predictor.model.parameters()).device
    sums, counts = [], []
    for number, first in enumerate(range(0, len(batch.tokens), rows_at_a_time)):
        truth = batch.tokens[first : first + rows_at_a_time]
        starts = batch.starts[first : first + rows_at_a_time]
        corrupted = objective.corrupt(truth, starts, vocabulary, stream(seed, 4, number))
        with autocast():
            each = losses(predictor, truth, corrupted, device).double().cpu().numpy()
        rows = np.nonzero(corrupted.chosen)[0]
        counted = corrupted.chosen
        if corrupted.weights is not None:  # a bound, in nats per token of the text
            each, counted = each * corrupted.weights[corrupted.chosen], vocabulary.eligible(truth)
        sums.append(np.bincount(rows, weights=each, minlength=len(truth)))
        counts.append(counted.sum(1))
    return _summary(np.concatenate(sums), np.concatenate(counts))


@torch.inference_mode()
def measure_single(
    predictor: Predictor, batch: Batch, vocabulary: Vocabulary, per_row: int = 4, seed: int = 0
) -> Measurement:
    """Loss with exactly one mask in a row and all else visible, at `per_row` places drawn in each row."""
    device = next(predictor.model.parameters()).device
    sums = np.zeros(len(batch.tokens))
    counts = np.zeros(len(batch.tokens), dtype=np.int64)
    for row, tokens in enumerate(batch.tokens):
        places = np.flatnonzero(vocabulary.eligible(tokens))
        places = stream(seed, 5, row).permutation(places)[:per_row]
        if not places.size:
            continue
        truth = np.repeat(tokens[None], len(places), axis=0)
        chosen = np.zeros(truth.shape, dtype=bool)
        chosen[np.arange(len(places)), places] = True
        seen = Corrupted(np.where(chosen, vocabulary.mask, truth), chosen, float(len(places)))
        each = losses(predictor, truth, seen, device).double().cpu().numpy()
        sums[row], counts[row] = each.sum(), len(places)
    return _summary(sums, counts)


def _summary(sums: np.ndarray, counts: np.ndarray) -> Measurement:
    """The ratio estimator over rows and its standard error (tokens of one row are not independent)."""
    total = int(counts.sum())
    mean = float(sums.sum() / total)
    spread = sums - mean * counts
    rows = len(sums)
    error = math.sqrt(float((spread**2).sum()) * rows / max(1, rows - 1)) / total
    return Measurement(mean, total, error)
