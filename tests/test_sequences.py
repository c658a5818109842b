"""Sequences are values: operations give new ones, and padding never becomes free."""

from __future__ import annotations

import pytest
import torch

from maskropolis.sequences import Sequences, concatenate


@pytest.fixture
def three() -> Sequences:
    return Sequences.from_lists(
        [[2, 7, 8, 3], [2, 9, 3], [2, 7, 7, 7, 3]],
        [[False, True, True, False], [False, True, False], [False, True, False, True, False]],
        padding=1,
    )


def test_from_lists_pads_at_the_right(three: Sequences) -> None:
    assert three.tokens.tolist() == [[2, 7, 8, 3, 1], [2, 9, 3, 1, 1], [2, 7, 7, 7, 3]]
    assert three.lengths.tolist() == [4, 3, 5] and three.free_counts.tolist() == [2, 1, 2]
    assert not (three.free & ~three.attention).any()
    assert len(three) == 3 and three.width == 5


def test_nothing_is_changed_in_place(three: Sequences) -> None:
    before = three.tokens.clone()
    changed = three.masked(torch.tensor([1, 1, 3]), 4).with_tokens(
        torch.tensor([[1, 2]] * 3), torch.tensor([[5, 6]] * 3)
    )
    assert torch.equal(three.tokens, before)
    assert changed.tokens.tolist() == [[2, 5, 6, 3, 1], [2, 5, 6, 1, 1], [2, 5, 6, 4, 3]]
    assert changed.tokens_at(torch.tensor([1, 2, 3])).tolist() == [5, 6, 4]
    assert changed.tokens_at(torch.tensor([[1, 2]] * 3)).tolist() == [[5, 6]] * 3


def test_rows_trim_and_concatenate(three: Sequences) -> None:
    short = three.rows(torch.tensor([1, 0, 1])).trimmed()
    assert short.tokens.tolist() == [[2, 9, 3, 1], [2, 7, 8, 3], [2, 9, 3, 1]]
    both = concatenate([short, three], padding=1)
    assert both.tokens[0].tolist() == [2, 9, 3, 1, 1] and len(both) == 6
    assert torch.equal(both.lengths, torch.cat([short.lengths, three.lengths]))
    assert three.rows(torch.tensor([False, True, False])).tokens.tolist() == [[2, 9, 3, 1, 1]]


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="one shape"):
        Sequences(torch.zeros(2, 3).long(), torch.zeros(2, 2).bool(), torch.zeros(2, 3).bool())
    with pytest.raises(ValueError, match="source must be"):
        Sequences(torch.zeros(2, 3).long(), torch.zeros(2, 3).bool(), torch.zeros(2, 3).bool(), torch.zeros(3).long())


def test_source_is_all_or_none(three: Sequences) -> None:
    sourced = Sequences(three.tokens, three.free, three.attention, torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="all parts or no part"):
        concatenate([three, sourced])
    joined = concatenate([sourced, sourced]).source
    assert joined is not None and joined.tolist() == [0, 1, 2, 0, 1, 2]
