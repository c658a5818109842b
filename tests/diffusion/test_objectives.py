"""The training objectives of masked diffusion: their expectations by enumeration on tabular models."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from cases import LENGTH, TOKENS, blank

from maskropolis.errors import InputError
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.targets.diffusion.bounds import BoundSettings, enumerated_bound
from maskropolis.targets.diffusion.noise import noise_by_name
from maskropolis.training.data.batches import stream
from maskropolis.training.masked.options import Options
from maskropolis.training.masked.prediction import losses, objective_value
from maskropolis.training.objectives import Bert, D3pm, Mdlm, Vocabulary
from maskropolis.training.objectives.times import spread_times

MASK = TOKENS


class Forced:
    """A generator whose decisions are set: rows get the time `time`, and exactly the positions `hidden` are masked.

    `rate` is the mask rate that the decisions will be compared with.
    """

    def __init__(self, hidden: tuple[int, ...], rate: float, time: float = 1.0) -> None:
        self.hidden, self.rate, self.time = hidden, rate, time

    def random(self, shape):
        if isinstance(shape, int):
            return np.full(shape, 1.0 - self.time)
        out = np.full(shape, (1.0 + self.rate) / 2)
        out[:, list(self.hidden)] = self.rate / 2
        return out

    def permutation(self, values):
        return values

    def integers(self, low, high, shape):
        return np.zeros(shape, dtype=int)


class TabularPredictor:
    """The forward pass of training on a tabular model."""

    def __init__(self, model: TabularMaskedLM) -> None:
        self.table = model

    def logits(self, tokens, chosen):
        row = blank(self.table).with_tokens(torch.arange(LENGTH)[None], tokens)
        return self.table.logits(row, torch.arange(LENGTH)[None])[chosen]


@pytest.fixture(scope="module")
def model():
    """Conditionals of no joint distribution, the mask token impossible (as SUBS has it)."""
    model = TabularMaskedLM.random(TOKENS, [LENGTH], seed=3, spread=2.0)
    model.tables[LENGTH][..., MASK] = -torch.inf
    return model


@pytest.fixture(scope="module")
def vocabulary():
    special = np.zeros(TOKENS + 1, dtype=bool)
    special[MASK] = True
    return Vocabulary(MASK, special, np.arange(TOKENS))


def expectation(objective, model, vocabulary, tokens, rate, time=1.0):
    """E over the sets of masked positions of the weighted sum of losses (not divided by a normaliser), and that of the
    loss of a batch of this row alone."""
    sums = loss = 0.0
    truth = np.array([tokens])
    for size in range(LENGTH + 1):
        for hidden in itertools.combinations(range(LENGTH), size):
            if size == 0 and isinstance(objective, Bert):
                continue  # BERT draws again
            chance = rate**size * (1 - rate) ** (LENGTH - size)
            seen = objective.corrupt(truth, np.ones_like(truth, dtype=bool), vocabulary, Forced(hidden, rate, time))
            assert seen.chosen[0].nonzero()[0].tolist() == list(hidden)
            assert (seen.tokens == np.where(seen.chosen, MASK, truth)).all()
            value = float(objective_value(losses(TabularPredictor(model), truth, seen, torch.device("cpu")), seen))
            loss += chance * value
            sums += chance * value * seen.normaliser
    return sums, loss


@pytest.mark.parametrize("rate", [0.15, 0.5, 1.0])
@pytest.mark.parametrize("tokens", list(itertools.product(range(TOKENS), repeat=LENGTH)))
def test_one_step_d3pm_with_mask_rate_r_is_the_bert_objective_at_rate_r(model, vocabulary, tokens, rate):
    diffusion, _ = expectation(D3pm(1, "d3pm", rate), model, vocabulary, tokens, rate)
    bert, _ = expectation(Bert(rate, masked=1.0, replaced=0.0), model, vocabulary, tokens, rate)
    assert diffusion == pytest.approx(bert, rel=1e-6)
    assert diffusion > 0


@pytest.mark.parametrize("noise", ["log-linear", "cosine", "d3pm"])
def test_the_d3pm_loss_is_the_t_step_bound_in_nats_per_token(model, vocabulary, noise):
    steps, tokens = 4, (0, 1, 1)
    alphas = noise_by_name(noise).alphas(steps)
    mean = 0.0
    for k in range(1, steps + 1):
        _, loss = expectation(D3pm(steps, noise), model, vocabulary, tokens, 1 - alphas[k], (k - 0.5) / steps)
        mean += loss / steps
    bound = enumerated_bound(model, row(model, tokens), BoundSettings("d3pm", time_steps=steps, noise=noise))
    assert mean * LENGTH == pytest.approx(bound.value, rel=1e-6)


@pytest.mark.parametrize("noise", ["log-linear", "linear", "cosine", "polynomial:power=3"])
def test_the_mdlm_loss_is_the_nelbo_in_nats_per_token(model, vocabulary, noise):
    """The time integral by quadrature, the expectation over masks by enumeration."""
    tokens = (1, 0, 1)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    total = 0.0
    for time, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        rate = float(1 - noise_by_name(noise).alpha(np.array(time)))
        total += weight * expectation(Mdlm(noise), model, vocabulary, tokens, rate, time)[1]
    bound = enumerated_bound(model, row(model, tokens), BoundSettings("nelbo"))
    assert total * LENGTH == pytest.approx(bound.value, rel=1e-5)


def row(model, tokens):
    return blank(model).with_tokens(torch.arange(LENGTH)[None], torch.tensor([tokens]))


def test_times_are_spread_evenly_and_masks_follow_them(vocabulary):
    times = spread_times(16, stream(0, 1))
    assert sorted(np.ceil(times * 16)) == list(range(1, 17)) and times.min() > 0
    tokens = stream(0, 2).integers(0, TOKENS, (64, 200))
    for objective in (Mdlm("cosine"), D3pm(50, "cosine")):
        seen = objective.corrupt(tokens, tokens >= 0, vocabulary, stream(0, 3))
        # Uniform times: the mean of 1 - α over them is ∫ cos(π/2 (1-t)) dt = 2/π.
        assert seen.chosen.mean() == pytest.approx(2 / math.pi, abs=0.02)
        assert (seen.tokens[seen.chosen] == MASK).all() and seen.normaliser == tokens.size
        assert seen.rows(slice(0, 8)).impossible == MASK


def test_the_mask_token_is_never_predicted(vocabulary):
    """A logit of the mask token changes nothing."""
    model = TabularMaskedLM.random(TOKENS, [LENGTH], seed=4)
    truth = np.array([[0, 1, 0]])
    seen = Mdlm().corrupt(truth, truth >= 0, vocabulary, Forced((0, 2), 0.5, 0.5))
    before = losses(TabularPredictor(model), truth, seen, torch.device("cpu"))
    model.tables[LENGTH][..., MASK] += 9.0
    assert losses(TabularPredictor(model), truth, seen, torch.device("cpu")).tolist() == before.tolist()


def test_options_name_the_objectives_and_refuse_nonsense():
    assert Options(("a",), "b", objective="mdlm", noise="cosine").training_objective() == Mdlm("cosine")
    made = Options(("a",), "b", objective="d3pm", time_steps=8)
    assert made.training_objective() == made.validation_objective() == D3pm(8, "log-linear")
    assert "noise" not in Options(("a",), "b").fixed()
    with pytest.raises(InputError, match="time steps"):
        Options(("a",), "b", objective="d3pm", time_steps=0)
    with pytest.raises(InputError, match="unknown noise schedule"):
        Options(("a",), "b", objective="mdlm", noise="sine")
    with pytest.raises(InputError, match="did you mean 'mdlm'"):
        Options(("a",), "b", objective="mdml")
