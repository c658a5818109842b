"""Times of a batch with low discrepancy: spread evenly over (0, 1), each of them uniform.

t_i = (i + u_i) / N mod 1,  in a random order of rows;  Kingma et al. (2021), appendix I.1; Sahoo et al. (2024)
"""

from __future__ import annotations

import numpy as np


def spread_times(rows: int, random: np.random.Generator) -> np.ndarray:
    """[N] float64 in (0, 1), exactly one in each N-th of the interval."""
    within = 1.0 - random.random(rows)  # (0, 1]: random() is in [0, 1)
    return random.permutation((np.arange(rows) + within) / rows)


def hide(eligible: np.ndarray, rates: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """[N, T] bool, each eligible position with probability rates[row], independently; perhaps none."""
    return (random.random(eligible.shape) < rates[:, None]) & eligible
