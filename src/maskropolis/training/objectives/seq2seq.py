"""Left-to-right prediction of the target: the decoder reads `<s> y_1 … y_N` and says `y_1 … y_N </s>`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskropolis.training.parallel.batches import PairBatch


@dataclass(frozen=True)
class Shifted:
    """Decoder input and labels [N, T + 1]; `chosen` [N, T + 1] bool, where a label counts."""

    given: np.ndarray
    labels: np.ndarray
    chosen: np.ndarray

    def rows(self, which: slice) -> Shifted:
        return Shifted(self.given[which], self.labels[which], self.chosen[which])


def shift(batch: PairBatch, begin_token: int, end_token: int, padding: int) -> Shifted:
    """Teacher forcing for one batch."""
    given = np.pad(batch.target, [(0, 0), (1, 0)], constant_values=begin_token)
    labels = np.pad(batch.target, [(0, 0), (0, 1)], constant_values=padding)
    labels[np.arange(len(labels)), batch.target_lengths] = end_token
    columns = np.arange(labels.shape[1])
    return Shifted(given, labels, columns[None] <= batch.target_lengths[:, None])
