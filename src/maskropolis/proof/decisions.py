"""Every outcome of a program that uses uniforms, with its exact probability, from the very code that samples.

The package turns uniforms into decisions only through `pick`, `draw` and `accept`, and these report the exact
probabilities of their outcomes to an observer. So a program is run over a tree: wherever an uniform is used that has
not been set yet, the row is replaced by one row for each outcome, its uniform set to the middle of the outcome's
interval and its weight multiplied by the outcome's probability. When every uniform that a row uses is set, the row ends
in one result with a known probability. No sampling, no second implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from maskropolis.randomness import observed

Program = Callable[[Tensor, Tensor], Tensor]
"""(origins [N] int64, uniforms [N, K] float64) -> results [N, M] int64, each row from its own origin and uniforms."""

# Uniforms not set yet carry their row and column: _UNSET + (row · columns + column) · _GRAIN. The digits of _UNSET are
# arbitrary, so that the middle of an interval does not look like one by accident.
_GRAIN = 2.0**-40
_UNSET = round(0.2718281828459045 / _GRAIN) * _GRAIN


class Outcomes(NamedTuple):
    """Some rows that ended: where each began [N], its probability [N] float64, and its result [N, M]."""

    origin: Tensor
    weight: Tensor
    result: Tensor


def outcomes(program: Program, origins: int, columns: int) -> Iterator[Outcomes]:
    """All outcomes of `program` from each of `origins` starts, in portions; the weights of a start add up to 1."""
    origin, weight = torch.arange(origins), torch.ones(origins, dtype=torch.float64)
    uniforms = torch.full((origins, columns), torch.nan, dtype=torch.float64)
    while len(origin):
        result, column, table = _observe(program, origin, uniforms)
        done = column < 0
        yield Outcomes(origin[done], weight[done], result[done])
        origin, weight, uniforms = _branch(origin[~done], weight[~done], uniforms[~done], column[~done], table[~done])


def distribution(program: Program, columns: int) -> tuple[Tensor, Tensor]:
    """(distinct results [R, M], their probabilities [R]) of a program from its only start."""
    parts = list(outcomes(program, 1, columns))
    results, name = torch.cat([part.result for part in parts]).unique(dim=0, return_inverse=True)
    weights = torch.zeros(len(results), dtype=torch.float64)
    return results, weights.index_add_(0, name, torch.cat([part.weight for part in parts]))


def _observe(program: Program, origin: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run once. For each row: its result, the first unset column that it used (−1: none), and the probabilities of the
    outcomes there."""
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
        new = _first_of_each(row, unset[row, column] & (first[row] < 0))
        first[row[new]] = column[new]
        found.append((row[new], probabilities[here[new]]))

    with observed(observer):
        result = program(origin, filled)
    table = torch.zeros(rows, max((p.shape[1] for _, p in found), default=0), dtype=torch.float64)
    for row, probabilities in found:
        table[row, : probabilities.shape[1]] = probabilities
    return result, first, table


def _first_of_each(row: Tensor, wanted: Tensor) -> Tensor:
    """Indices of the wanted entries, the first of each row: one call may decide several things for the same row."""
    index = wanted.nonzero()[:, 0]
    _, name = row[index].unique(return_inverse=True)
    first = torch.full((int(name.max()) + 1 if len(name) else 0,), len(row), dtype=torch.long)
    return first.scatter_reduce(0, name, index, "amin")


def _branch(
    origin: Tensor, weight: Tensor, uniforms: Tensor, column: Tensor, table: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One row for each outcome of positive probability, its uniform in the middle of the outcome's interval."""
    row, outcome = (table > 0).nonzero(as_tuple=True)
    probability = table[row, outcome]
    middle = table.cumsum(1)[row, outcome] - probability / 2
    uniforms = uniforms[row].clone()
    uniforms[torch.arange(len(row)), column[row]] = middle
    return origin[row], weight[row] * probability, uniforms
