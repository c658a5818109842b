"""The masking statistics, with bounds from the sample size, and what may never be chosen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maskropolis.errors import InputError
from maskropolis.training.data.batches import stream
from maskropolis.training.objectives import Bert, Mixture, UniformRate, Vocabulary

SIZE, MASK, PAD, CLS, SEP = 1000, 4, 0, 2, 3
ROWS, LENGTH = 800, 64


@pytest.fixture
def vocabulary() -> Vocabulary:
    special = np.zeros(SIZE, dtype=bool)
    special[:5] = True
    return Vocabulary(MASK, special, np.arange(5, SIZE))


@pytest.fixture
def tokens() -> np.ndarray:
    """Rows with an opener, separators inside, and padding at the end of every second row."""
    tokens = stream(1, 1).integers(5, SIZE, (ROWS, LENGTH))
    tokens[:, 0] = CLS
    tokens[:, 40] = SEP
    tokens[::2, 50:] = PAD
    return tokens


@pytest.fixture
def starts() -> np.ndarray:
    """Words of one to four pieces."""
    starts = stream(1, 2).random((ROWS, LENGTH)) < 0.6
    starts[:, [0, 1, 40, 41]] = True
    return starts


def assert_share(count: int, total: int, expected: float) -> None:
    """A binomial count within five standard deviations: fails by chance once in two million times."""
    assert abs(count / total - expected) <= 5 * math.sqrt(expected * (1 - expected) / total)


def test_bert_chooses_15_percent_and_treats_them_80_10_10(vocabulary, tokens, starts):
    seen = Bert().corrupt(tokens, starts, vocabulary, stream(0, 1))
    eligible = tokens >= 5
    assert_share(seen.chosen.sum(), eligible.sum(), 0.15)
    now, before = seen.tokens[seen.chosen], tokens[seen.chosen]
    assert_share((now == MASK).sum(), now.size, 0.8)
    # A random token is the old one once in 995 times: such a replacement looks like keeping.
    assert_share(((now != MASK) & (now != before)).sum(), now.size, 0.1 * (1 - 1 / 995))
    assert_share((now == before).sum(), now.size, 0.1 + 0.1 / 995)
    assert seen.normaliser == seen.chosen.sum()


@pytest.mark.parametrize("choose", ["token", "word", "span"])
@pytest.mark.parametrize("make", [lambda c: Bert(0.5, choose=c), lambda c: UniformRate(choose=c)])
def test_special_tokens_and_padding_are_never_chosen_or_put_in(vocabulary, tokens, starts, choose, make):
    seen = make(choose).corrupt(tokens, starts, vocabulary, stream(0, 2))
    assert not seen.chosen[tokens < 5].any()
    assert (seen.tokens[~seen.chosen] == tokens[~seen.chosen]).all()
    put_in = seen.tokens[seen.chosen & (seen.tokens != MASK)]
    assert (put_in >= 5).all()


def test_other_numbers_are_kept_to(vocabulary, tokens, starts):
    seen = Bert(rate=0.4, masked=0.5, replaced=0.0).corrupt(tokens, starts, vocabulary, stream(0, 3))
    assert_share(seen.chosen.sum(), (tokens >= 5).sum(), 0.4)
    assert_share((seen.tokens[seen.chosen] == MASK).sum(), seen.chosen.sum(), 0.5)
    assert (seen.tokens[seen.chosen & (seen.tokens != MASK)] == tokens[seen.chosen & (seen.tokens != MASK)]).all()


def test_uniform_rates_mask_purely_and_spread_evenly(vocabulary, tokens, starts):
    seen = UniformRate(0.2, 0.6).corrupt(tokens, starts, vocabulary, stream(0, 4))
    assert (seen.tokens[seen.chosen] == MASK).all()
    share = seen.chosen.sum(1) / (tokens >= 5).sum(1)
    assert abs(share.mean() - 0.4) < 5 * share.std() / math.sqrt(ROWS)
    # Uniform on (0.2, 0.6] has variance 0.4²/12; drawing each token adds E[r(1 - r)]/n.
    within = np.mean([r * (1 - r) for r in np.linspace(0.2, 0.6, 101)]) * np.mean(1 / (tokens >= 5).sum(1))
    assert share.var() == pytest.approx(0.4**2 / 12 + within, rel=0.2)


def test_the_rate_of_one_masks_everything(vocabulary, tokens, starts):
    seen = UniformRate(1.0, 1.0).corrupt(tokens, starts, vocabulary, stream(0, 5))
    assert (seen.chosen == (tokens >= 5)).all()


def test_whole_words_are_chosen_whole(vocabulary, tokens, starts):
    chosen = Bert(choose="word").corrupt(tokens, starts, vocabulary, stream(0, 6)).chosen
    inside = ~starts & (tokens >= 5)
    inside[:, 1:] &= tokens[:, :-1] >= 5
    rows, columns = np.nonzero(inside)
    assert (chosen[rows, columns] == chosen[rows, columns - 1]).all()
    eligible = tokens >= 5
    assert chosen.sum() / eligible.sum() == pytest.approx(0.15, abs=0.01)


def test_spans_are_long_and_keep_to_the_rate(vocabulary, tokens, starts):
    chosen = Bert(choose="span").corrupt(tokens, starts, vocabulary, stream(0, 7)).chosen
    eligible = tokens >= 5
    assert np.abs(chosen.sum(1) - 0.15 * eligible.sum(1)).max() < 1
    assert chosen.sum() / eligible.sum() == pytest.approx(0.15, abs=0.003)
    runs = (chosen & ~np.pad(chosen[:, :-1], [(0, 0), (1, 0)])).sum()
    assert chosen.sum() / runs > 2.5  # 1/(1 - 0.15) = 1.18 if each token were chosen on its own


def test_a_batch_always_has_something_to_predict(vocabulary):
    tokens = np.array([[CLS, 7, SEP]])
    for choose in ("token", "word", "span"):
        for n in range(20):
            seen = Bert(0.001, choose=choose).corrupt(tokens, np.ones((1, 3), bool), vocabulary, stream(n, 8))
            assert seen.chosen.tolist() == [[False, True, False]]


def test_the_same_generator_gives_the_same_masks_and_another_one_others(vocabulary, tokens, starts):
    one, same, other = (Bert().corrupt(tokens, starts, vocabulary, stream(0, 9, n)) for n in (1, 1, 2))
    assert (one.tokens == same.tokens).all() and (one.chosen == same.chosen).all()
    assert (one.chosen != other.chosen).any()


def test_a_mixture_takes_turns(vocabulary, tokens, starts):
    mixture = Mixture(Bert(0.15), UniformRate(0.9, 1.0), share=0.3)
    few = tokens[:4], starts[:4]
    high = sum(mixture.corrupt(*few, vocabulary, stream(0, 10, n)).chosen.mean() > 0.5 for n in range(600))
    assert_share(high, 600, 0.3)


def test_rows_of_a_corrupted_batch_keep_the_normaliser(vocabulary, tokens, starts):
    seen = Bert().corrupt(tokens, starts, vocabulary, stream(0, 11))
    half = seen.rows(slice(1, None, 2))
    assert (half.tokens == seen.tokens[1::2]).all() and half.normaliser == seen.normaliser


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bert(0.0),
        lambda: Bert(1.5),
        lambda: Bert(-0.1),
        lambda: Bert(float("nan")),
        lambda: Bert(masked=0.8, replaced=0.3),
        lambda: Bert(masked=-0.1),
        lambda: Bert(choose="letter"),
        lambda: UniformRate(0.0, 0.0),
        lambda: UniformRate(0.0, 1.2),
        lambda: UniformRate(0.7, 0.5),
        lambda: UniformRate(-0.1, 0.5),
        lambda: Mixture(Bert(), Bert(), 1.1),
    ],
)
def test_numbers_out_of_range_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_the_vocabulary_knows_special_and_unused_tokens(tokenizer):
    vocabulary = Vocabulary.of(tokenizer, len(tokenizer) + 3)
    assert vocabulary.mask == tokenizer.mask_token_id
    assert set(np.flatnonzero(vocabulary.special)) == set(tokenizer.all_special_ids)
    assert set(vocabulary.ordinary) == set(range(len(tokenizer))) - set(tokenizer.all_special_ids)
