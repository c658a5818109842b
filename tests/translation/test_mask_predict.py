"""Mask-Predict against a plain loop after the authors' code, written here from the paper."""

from __future__ import annotations

import pytest
import tiny_conditional
import torch

from maskropolis.decoders.mask_predict import best_of, mask_predict, remasked
from maskropolis.errors import InputError

SOURCES = ["a b", "c c a b", "b", "a a a b c"]


def plainly(model, source, length, iterations):
    """One sentence: all probabilities in one list, the worst n = ⌊N (T − t)/T⌋ (at least one) masked in each round."""
    bound = model.bind([model.source_ids(source, "source")])
    tokens, probabilities = [bound.mask_token] * length, [0.0] * length
    masked = list(range(length))
    for iteration in range(iterations):
        if iteration:
            count = max(1, int(length * (1 - iteration / iterations)))
            masked = sorted(range(length), key=lambda i: (probabilities[i], i))[:count]
            for i in masked:
                tokens[i] = bound.mask_token
        row = bound.rows([0], [tokens])
        logits = bound.logits(row, torch.tensor([masked]))[0].double()
        for j, i in enumerate(masked):
            spread = logits[j].softmax(-1)
            allowed = spread.masked_fill(~bound.allowed, -1)
            tokens[i], probabilities[i] = int(allowed.argmax()), float(spread[allowed.argmax()])
    return tokens, sum(torch.tensor(probabilities).double().log()) / length


@pytest.mark.parametrize("iterations", [1, 2, 4, 10])
def test_many_rows_at_once_are_each_row_alone(iterations):
    model = tiny_conditional.model()
    bound = model.bind([model.source_ids(text, "source") for text in SOURCES])
    owner, lengths = [0, 1, 2, 3, 1], [3, 6, 1, 7, 4]
    filled = mask_predict(bound, bound.blank(owner, lengths), iterations)
    for i, (source, length) in enumerate(zip(owner, lengths, strict=True)):
        tokens, average = plainly(model, SOURCES[source], length, iterations)
        assert bound.targets(filled.sequences)[i] == tokens
        assert float(filled.average[i]) == pytest.approx(float(average), abs=1e-5)
    assert filled.rows == iterations * len(owner)


def test_the_number_of_masks_falls_linearly():
    counts = torch.tensor([10, 7, 1])
    assert [remasked(counts, t, 10).tolist() for t in (1, 5, 9)] == [[9, 6, 1], [5, 3, 1], [1, 1, 1]]


def test_a_predicted_end_is_masked_and_counted_like_any_token():
    model = tiny_conditional.model(end="predicted", spread=2.0)
    bound = model.bind([model.source_ids(text, "source") for text in SOURCES])
    blank = bound.blank([0, 1], [4, 6])
    assert blank.free_counts.tolist() == [4, 6]
    filled = mask_predict(bound, blank, 3, bound.decodable)
    assert bound.decodable[1] and not bound.allowed[1]
    rows = bound.rows([0, 1], bound.targets(filled.sequences))
    assert [int(tokens[length - 1]) for tokens, length in zip(rows.tokens, rows.lengths, strict=True)] == [1, 1]


def test_the_best_of_each_group_and_too_few_iterations():
    assert best_of(torch.tensor([1.0, 3.0, 2.0, 2.0]), [0, 0, 1, 1]) == [1, 2]
    model = tiny_conditional.model()
    bound = model.bind([[4, 1]])
    with pytest.raises(InputError, match="0 iterations"):
        mask_predict(bound, bound.blank([0], [2]), 0)
