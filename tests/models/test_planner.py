"""The token budget: measured where memory is scarce, never more than what helps."""

from __future__ import annotations

import pytest

from maskropolis.models.forward import planner
from maskropolis.models.reference.tabular import TabularMaskedLM


@pytest.fixture
def model() -> TabularMaskedLM:
    return TabularMaskedLM.random(tokens=2, lengths=[3], seed=0)


def test_ample_memory_gives_what_helps(model: TabularMaskedLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "free_memory", lambda device: 64 << 30)
    assert planner.measured_budget(model) == planner.ENOUGH["cpu"]


@pytest.mark.parametrize(("free", "expected"), [(1 << 20, 524), (1 << 30, 1024), (1 << 10, planner.LEAST)])
def test_scarce_memory_is_divided_by_the_cost_of_a_token(
    model: TabularMaskedLM, monkeypatch: pytest.MonkeyPatch, free: int, expected: int
) -> None:
    monkeypatch.setattr(planner, "free_memory", lambda device: free)
    monkeypatch.setattr(planner, "bytes_per_token", lambda model: 1000.0)
    assert planner.measured_budget(model) == expected


def test_the_cost_is_the_growth_between_two_batches(model: TabularMaskedLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_peak", lambda model, rows: 5000 + 700 * len(rows) * rows.width)
    assert planner.bytes_per_token(model) == pytest.approx(700)
