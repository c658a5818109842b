"""Exact transition matrices, computed from the very code that samples.

A kernel turns uniforms into decisions only through `pick`, `draw` and `accept`, and these report the exact
probabilities of their outcomes to an observer. So one step is run over a tree: wherever an uniform is used that has not
been set yet, the row is replaced by one row for each outcome, its uniform set to the middle of the outcome's interval
and its weight multiplied by the outcome's probability. When every uniform that a row uses is set, the row ends in one
state with a known probability. No sampling, no second implementation of the kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.kernels.base import Kernel
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import observed
from maskropolis.sequences import Sequences

_UNSET = 0.25  # uniforms not set yet carry their row and column: _UNSET + (row · columns + column) · _GRAIN
_GRAIN = 2.0**-40


def transition_matrix(
    model: MaskedLM, kernel: Kernel, states: Sequences, temperature: float = 1.0, step: int = 0
) -> Tensor:
    """P [S, S] float64: row i is the distribution after one step from state i.

    `states` [S, T] must hold every state that can be reached. `step` is the step number, which systematic scans use.
    Raises `ValueError` if the kernel leaves `states`.
    """
    size = len(states)
    origin, weight = torch.arange(size), torch.ones(size, dtype=torch.float64)
    uniforms = torch.full((size, kernel.uniforms_per_step), torch.nan, dtype=torch.float64)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    lookup = {tuple(row): index for index, row in enumerate(states.tokens.tolist())}
    while len(origin):
        result, column, outcomes = _observe_step(model, kernel, states.rows(origin), temperature, step, uniforms)
        done = column < 0
        for o, w, row in zip(origin[done].tolist(), weight[done].tolist(), result.tokens[done].tolist(), strict=True):
            if tuple(row) not in lookup:
                raise ValueError(f"the kernel '{kernel.name}' reached a state that was not listed")
            matrix[o, lookup[tuple(row)]] += w
        origin, weight, uniforms = _branch(
            origin[~done], weight[~done], uniforms[~done], column[~done], outcomes[~done]
        )
    return matrix


def _observe_step(
    model: MaskedLM, kernel: Kernel, sequences: Sequences, temperature: float, step: int, uniforms: Tensor
) -> tuple[Sequences, Tensor, Tensor]:
    """Run one step; for each row the first unset column that it used (−1: none) and its outcome probabilities."""
    rows, columns = uniforms.shape
    labels = torch.arange(rows * columns, dtype=torch.float64).view(rows, columns)
    filled = torch.where(uniforms.isnan(), _UNSET + labels * _GRAIN, uniforms)
    unset = uniforms.isnan()
    first = torch.full((rows,), -1, dtype=torch.long)
    outcomes: list[Tensor | None] = [None] * rows

    def observer(probabilities: Tensor, used: Tensor) -> None:
        label = ((used - _UNSET) / _GRAIN).round()
        whole = (_UNSET + label * _GRAIN == used) & (label >= 0) & (label < rows * columns)
        for index in whole.nonzero()[:, 0].tolist():
            row, column = divmod(int(label[index]), columns)
            if unset[row, column] and first[row] < 0:
                first[row], outcomes[row] = column, probabilities[index]

    state = kernel.init(model, sequences)
    state = type(state)(state.sequences, state.evaluation, step, state.memory)
    with observed(observer):
        after, _ = kernel.step(model, state, temperature, filled)
    most = max((len(p) for p in outcomes if p is not None), default=0)
    table = torch.zeros(rows, most, dtype=torch.float64)
    for index, found in enumerate(outcomes):
        if found is not None:
            table[index, : len(found)] = found
    return after.sequences, first, table


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


def stationary_distribution(matrix: Tensor) -> Tensor:
    """The distribution [S] with π P = π of an irreducible chain, by solving the linear system in float64."""
    size = len(matrix)
    system = torch.cat([(matrix.T - torch.eye(size, dtype=matrix.dtype)), torch.ones(1, size, dtype=matrix.dtype)])
    right = torch.zeros(size + 1, 1, dtype=matrix.dtype)
    right[-1] = 1
    return torch.linalg.lstsq(system, right, driver="gelsd").solution[:, 0]


def detailed_balance_error(matrix: Tensor, target: Tensor) -> float:
    """max |π_i P_ij − π_j P_ji|."""
    flow = target[:, None] * matrix
    return float((flow - flow.T).abs().max())


def invariance_error(matrix: Tensor, target: Tensor) -> float:
    """max |π P − π|."""
    return float((target @ matrix - target).abs().max())


def total_variation(p: Tensor, q: Tensor) -> float:
    """½ Σ |p − q|."""
    return float((p - q).abs().sum() / 2)


def spectral_gap(matrix: Tensor) -> float:
    """1 − the second largest modulus of an eigenvalue: 0 does not mix, 1 mixes in one step."""
    moduli = torch.linalg.eigvals(matrix).abs().sort(descending=True).values
    return float(1 - moduli[1]) if len(moduli) > 1 else 1.0
