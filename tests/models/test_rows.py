"""Batches of rows: each row once, the same numbers whatever the budget, smaller when memory runs out."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from maskropolis.errors import NumericalError
from maskropolis.models.forward import rows as rows_module
from maskropolis.models.forward.rows import Rows, batches, single_mask_rows
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.sequences import Sequences

LENGTHS = [3, 1, 2, 3, 2]


@pytest.fixture
def model() -> TabularMaskedLM:
    return TabularMaskedLM.random(tokens=3, lengths=[1, 2, 3], seed=0)


@pytest.fixture
def sequences() -> Sequences:
    tokens = [[(row + t) % 3 for t in range(length)] for row, length in enumerate(LENGTHS)]
    return Sequences.from_lists(tokens, [[True] * length for length in LENGTHS])


def collected(model: TabularMaskedLM, sequences: Sequences, rows: Rows) -> tuple[list[int], Tensor]:
    parts = list(batches(model, sequences, rows))
    return torch.cat([index for index, _ in parts]).tolist(), torch.cat([logits for _, logits in parts])


@pytest.mark.parametrize("budget", [1, 4, 7, 1000])
def test_budgets_change_nothing(model: TabularMaskedLM, sequences: Sequences, budget: int) -> None:
    rows = single_mask_rows(sequences)
    order, logits = collected(model, sequences, rows)
    model.budget.tokens = budget
    order_again, logits_again = collected(model, sequences, rows)
    assert sorted(order_again) == list(range(len(rows))) == list(range(sum(LENGTHS)))
    assert order_again == order and torch.equal(logits_again, logits)


def test_batches_keep_to_the_budget(
    model: TabularMaskedLM, sequences: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    watch(model, monkeypatch, lambda s: sizes.append((len(s), s.width)))
    model.budget.tokens = 6
    list(batches(model, sequences, single_mask_rows(sequences)))
    assert all(rows * width <= 6 for rows, width in sizes) and sum(rows for rows, _ in sizes) == sum(LENGTHS)


def test_padding_unsafe_models_see_one_length_at_a_time(
    model: TabularMaskedLM, sequences: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.padding_safe = False
    watch(model, monkeypatch, lambda s: widths.append(s.lengths.unique().tolist()))
    widths: list[list[int]] = []
    list(batches(model, sequences, single_mask_rows(sequences)))
    assert widths == [[3], [2], [1]]


def test_skipped_positions_have_no_row(sequences: Sequences) -> None:
    skip = torch.zeros_like(sequences.free)
    skip[:, 0] = True
    rows = single_mask_rows(sequences, skip)
    assert len(rows) == sum(length - 1 for length in LENGTHS) and (rows.asked > 0).all()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(),
                                   RuntimeError("DefaultCPUAllocator: can't allocate memory")])  # fmt: skip
def test_less_memory_means_smaller_batches(
    model: TabularMaskedLM, sequences: Sequences, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    rows = single_mask_rows(sequences)
    order, logits = collected(model, sequences, rows)

    def full(asked: Sequences) -> None:
        if len(asked) > 2:
            raise error

    watch(model, monkeypatch, full)
    order_again, logits_again = collected(model, sequences, rows)
    assert order_again == order and torch.equal(logits_again, logits)
    assert model.budget.tokens < 4096


def test_one_row_too_large_and_other_errors_are_raised(
    model: TabularMaskedLM, sequences: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(asked: Sequences) -> None:
        raise RuntimeError(message)

    watch(model, monkeypatch, always)
    for message in ("out of memory", "a bug"):
        with pytest.raises(RuntimeError, match=message):
            list(batches(model, sequences, single_mask_rows(sequences)))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_bad_numbers_name_their_chains(model: TabularMaskedLM, sequences: Sequences, value: float) -> None:
    model.tables[2][0, :, 1] = value
    with pytest.raises(NumericalError, match=r"NaN or infinite logits \(chain 2, 4\)") as caught:
        list(batches(model, sequences, single_mask_rows(sequences)))
    assert caught.value.chains == (2, 4)


def test_impossible_tokens_are_no_error(model: TabularMaskedLM, sequences: Sequences) -> None:
    model.tables[2][0, :, 1] = -torch.inf
    list(batches(model, sequences, single_mask_rows(sequences)))


def watch(model: TabularMaskedLM, monkeypatch: pytest.MonkeyPatch, see: Callable[[Sequences], object]) -> None:
    """Show `see` the sequences of every forward pass first."""
    forward = model.logits

    def watched(sequences: Sequences, positions: Tensor) -> Tensor:
        see(sequences)
        return forward(sequences, positions)

    monkeypatch.setattr(model, "logits", watched)


@pytest.mark.parametrize("safe", [True, False])
def test_a_batch_is_the_largest_with_little_padding(monkeypatch: pytest.MonkeyPatch, safe: bool) -> None:
    monkeypatch.setattr(rows_module, "SMALL", 20)
    generator = random.Random(0)
    for _ in range(500):
        lengths = sorted((generator.randint(3, 9) for _ in range(generator.randint(1, 30))), reverse=True)
        start = generator.randrange(len(lengths))
        stop = min(len(lengths), start + generator.randint(1, 20))

        def good(end: int, lengths: list[int] = lengths, start: int = start) -> bool:
            padded = lengths[start] * (end - start)
            real = sum(lengths[start:end])
            return real >= (1 - 0.05) * padded or padded <= 20 if safe else real == padded

        expected = max(end for end in range(start + 1, stop + 1) if good(end))
        ends = list(itertools.accumulate(lengths, initial=0))
        assert rows_module._last_that_fits(ends, start, stop, safe) == expected
