"""Exact transition matrices, computed from the very code that samples: one step of a kernel, all of its outcomes.

See `maskropolis.proof.decisions` for how outcomes are found with their probabilities.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from maskropolis.kernels.base import Kernel, State
from maskropolis.models.protocol import MaskedLM
from maskropolis.proof.decisions import outcomes
from maskropolis.proof.markov import (
    detailed_balance_error,
    invariance_error,
    spectral_gap,
    stationary_distribution,
    total_variation,
)
from maskropolis.sequences import Sequences

__all__ = [
    "detailed_balance_error",
    "identity",
    "invariance_error",
    "spectral_gap",
    "stationary_distribution",
    "total_variation",
    "transition_matrix",
    "transition_of_states",
]


def transition_matrix(
    model: MaskedLM, kernel: Kernel, states: Sequences, temperature: float = 1.0, step: int = 0
) -> Tensor:
    """P [S, S] float64: row i is the distribution after one step from state i.

    `states` [S, T] must hold every state that can be reached. `step` is the step number, which systematic scans use.
    Raises `ValueError` if the kernel leaves `states`.
    """
    return transition_of_states(model, kernel, kernel.init(model, states), temperature, step)


def transition_of_states(
    model: MaskedLM, kernel: Kernel, states: State, temperature: float = 1.0, step: int = 0
) -> Tensor:
    """As `transition_matrix`, for kernels whose state is more than one sequence: S states as the kernel holds them.

    Two states are the same when their tokens, the integers in their memory and their inner states are.
    """
    size = len(states.sequences)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    states = _at_step(states, step)
    listed = identity(states)

    def one_step(origin: Tensor, uniforms: Tensor) -> Tensor:
        after, _ = kernel.step(model, states.rows(origin), temperature, uniforms)
        return identity(after)

    for part in outcomes(one_step, size, kernel.uniforms_per_step):
        place = _place(part.result, listed)
        if bool((place < 0).any()):
            raise ValueError(f"the kernel '{kernel.name}' reached a state that was not listed")
        matrix.index_put_((part.origin, place), part.weight, accumulate=True)
    return matrix


def _place(rows: Tensor, listed: Tensor) -> Tensor:
    """[N] int64, where each of `rows` [N, K] stands in `listed` [S, K]; −1 if nowhere."""
    _, name = torch.cat([listed, rows]).unique(dim=0, return_inverse=True)
    where = torch.full((len(listed) + len(rows),), -1, dtype=torch.long)
    where[name[: len(listed)]] = torch.arange(len(listed))
    return where[name[len(listed) :]]


def identity(state: State) -> Tensor:
    """[C, K] int64: what tells the states of a chain apart. Floating-point memory is derived from it and left out."""
    whole = [value for value in state.memory.values() if not value.is_floating_point()]
    parts = [state.sequences.tokens, *(value.reshape(len(value), -1).long() for value in whole)]
    if state.inner is not None:
        parts.append(identity(state.inner).reshape(len(state.sequences), -1))
    return torch.cat(parts, 1)


def _at_step(state: State, step: int) -> State:
    return replace(state, step=step, inner=None if state.inner is None else _at_step(state.inner, step))
