"""Exact transition matrices, computed from the very code that samples.

A kernel turns uniforms into decisions only through `pick`, `draw` and `accept`, and these report the exact
probabilities of their outcomes to an observer. So one step is run over a tree: wherever an uniform is used that has not
been set yet, the row is replaced by one row for each outcome, its uniform set to the middle of the outcome's interval
and its weight multiplied by the outcome's probability. When every uniform that a row uses is set, the row ends in one
state with a known probability. No sampling, no second implementation of the kernel.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from maskropolis.chains.markov import (
    detailed_balance_error,
    invariance_error,
    spectral_gap,
    stationary_distribution,
    total_variation,
)
from maskropolis.kernels.base import Kernel, State
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import observed
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

_UNSET = 0.25  # uniforms not set yet carry their row and column: _UNSET + (row · columns + column) · _GRAIN
_GRAIN = 2.0**-40


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
    origin, weight = torch.arange(size), torch.ones(size, dtype=torch.float64)
    uniforms = torch.full((size, kernel.uniforms_per_step), torch.nan, dtype=torch.float64)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    states = _at_step(states, step)
    listed = identity(states)
    while len(origin):
        reached, column, outcomes = _observe_step(model, kernel, states.rows(origin), temperature, uniforms)
        done = column < 0
        place = _place(reached[done], listed)
        if bool((place < 0).any()):
            raise ValueError(f"the kernel '{kernel.name}' reached a state that was not listed")
        matrix.index_put_((origin[done], place), weight[done], accumulate=True)
        origin, weight, uniforms = _branch(
            origin[~done], weight[~done], uniforms[~done], column[~done], outcomes[~done]
        )
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


def _observe_step(
    model: MaskedLM, kernel: Kernel, state: State, temperature: float, uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run one step. For each row: the identity of the state reached, the first unset column that it used (−1: none),
    and the probabilities of the outcomes there."""
    rows, columns = uniforms.shape
    labels = torch.arange(rows * columns, dtype=torch.float64).view(rows, columns)
    unset = uniforms.isnan()
    filled = torch.where(unset, _UNSET + labels * _GRAIN, uniforms)
    first = torch.full((rows,), -1, dtype=torch.long)
    found: list[tuple[Tensor, Tensor]] = []

    def observer(probabilities: Tensor, used: Tensor) -> None:
        label = ((used - _UNSET) / _GRAIN).round()
        whole = (_UNSET + label * _GRAIN == used) & (label >= 0) & (label < rows * columns)
        here = whole.nonzero()[:, 0]
        row, column = label[here].long() // columns, label[here].long() % columns
        new = unset[row, column] & (first[row] < 0)
        first[row[new]] = column[new]
        found.append((row[new], probabilities[here[new]]))

    with observed(observer):
        after, _ = kernel.step(model, state, temperature, filled)
    table = torch.zeros(rows, max((p.shape[1] for _, p in found), default=0), dtype=torch.float64)
    for row, probabilities in found:
        table[row, : probabilities.shape[1]] = probabilities
    return identity(after), first, table


def _branch(
    origin: Tensor, weight: Tensor, uniforms: Tensor, column: Tensor, outcomes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One row for each outcome of positive probability, its uniform in the middle of the outcome's interval."""
    row, outcome = (outcomes > 0).nonzero(as_tuple=True)
    probability = outcomes[row, outcome]
    middle = outcomes.cumsum(1)[row, outcome] - probability / 2
    uniforms = uniforms[row].clone()
    uniforms[torch.arange(len(row)), column[row]] = middle
    return origin[row], weight[row] * probability, uniforms
