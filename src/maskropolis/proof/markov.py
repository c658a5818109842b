"""What a transition matrix says: invariance, detailed balance, classes, stationary distribution, spectral gap."""

from __future__ import annotations

import torch
from torch import Tensor


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
    return max(0.0, float(1 - moduli[1])) if len(moduli) > 1 else 1.0


def stationary_distribution(matrix: Tensor) -> Tensor:
    """The distribution [S] with π P = π of an irreducible chain.

    Elimination without subtractions, so that small probabilities of slowly mixing chains keep their relative accuracy:
    Grassmann, Taksar & Heyman (1985).
    """
    work, size = matrix.double().clone(), len(matrix)
    for last in range(size - 1, 0, -1):
        work[:last, last] /= work[last, :last].sum()
        work[:last, :last] += work[:last, last, None] * work[None, last, :last]
    weights = torch.ones(size, dtype=torch.float64)
    for index in range(1, size):
        weights[index] = weights[:index] @ work[:index, index]
    return weights / weights.sum()


def closed_classes(matrix: Tensor) -> list[Tensor]:
    """Sets of states [k] that reach one another and nothing else. An irreducible chain has one, of all states."""
    reach = (matrix > 0) | torch.eye(len(matrix), dtype=torch.bool)
    for _ in range(max(1, (len(matrix) - 1).bit_length())):
        reach = (reach.double() @ reach.double()) > 0
    closed = (reach & ~reach.T).sum(1) == 0
    classes: list[Tensor] = []
    seen = torch.zeros(len(matrix), dtype=torch.bool)
    for state in closed.nonzero()[:, 0].tolist():
        if not seen[state]:
            classes.append(reach[state].nonzero()[:, 0])
            seen |= reach[state]
    return classes


def long_run_distribution(matrix: Tensor, start: Tensor) -> Tensor:
    """Where a chain spends its time when it starts from `start` [S]: the limit of (1/n) Σ start · P^k.

    A reducible chain has many invariant distributions; this is the one that is reached. Each closed class has its own
    stationary distribution, weighted by the probability that the chain ends in it.
    """
    out = torch.zeros(len(matrix), dtype=torch.float64)
    classes = closed_classes(matrix)
    transient = torch.ones(len(matrix), dtype=torch.bool)
    for members in classes:
        transient[members] = False
    visits = start[transient]
    if len(visits):
        inside = matrix[transient][:, transient]
        visits = torch.linalg.solve((torch.eye(len(inside), dtype=torch.float64) - inside).T, visits)
    for members in classes:
        weight = start[members].sum() + (visits @ matrix[transient][:, members]).sum()
        out[members] = weight * stationary_distribution(matrix[members][:, members])
    return out
