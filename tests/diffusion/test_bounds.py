"""Bounds on −log p(x): against exact marginals and plain enumeration, and their estimates against them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from cases import LENGTH, TOKENS, blank, enumerated, joint

from maskropolis.decoders.diffusion.ancestral import Ancestral
from maskropolis.decoders.diffusion.first_hitting import FirstHitting
from maskropolis.errors import InputError
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.targets.diffusion.any_order import any_order_bounds, order_losses
from maskropolis.targets.diffusion.bounds import (
    BoundSettings,
    coefficients,
    enumerated_bound,
    estimated_bounds,
    size_distribution,
)
from maskropolis.targets.diffusion.noise import noise_by_name

NOISES = ["log-linear", "linear", "cosine", "polynomial:power=3", "d3pm"]


@pytest.fixture(scope="module")
def improper():
    """Conditionals of no joint distribution: the bounds are strict."""
    return TabularMaskedLM.random(TOKENS, [LENGTH], seed=3, spread=2.0)


def states(model):
    """Every complete row with its tokens."""
    for tokens in itertools.product(range(TOKENS), repeat=LENGTH):
        yield tokens, blank(model).with_tokens(torch.arange(LENGTH)[None], torch.tensor([tokens]))


def losses(model, row, hidden):
    """S(M) by hand: −Σ log p(x_i | visible) with the mask token excluded."""
    state = row.masked(torch.tensor([hidden]), model.mask_token)
    p = model.logits(state, torch.tensor([hidden]))[0, :, :TOKENS].log_softmax(-1)
    return -sum(float(p[j, row.tokens[0, at]]) for j, at in enumerate(hidden))


def subsets():
    return [m for size in range(1, LENGTH + 1) for m in itertools.combinations(range(LENGTH), size)]


@pytest.mark.parametrize("noise", NOISES)
def test_the_nelbo_is_the_time_integral_for_every_schedule(improper, noise):
    """∫ −α′/(1−α) Σ_M P(M | t) S(M) dt by Gauss-Legendre quadrature, with the schedule's own weight."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    time, weights = (nodes + 1) / 2, weights / 2
    curve = noise_by_name(noise)
    alpha, weight = curve.alpha(time), curve.weight(time)
    for _, row in states(improper):
        integral = sum(
            float((weights * weight * (1 - alpha) ** len(m) * alpha ** (LENGTH - len(m))).sum())
            * losses(improper, row, list(m))
            for m in subsets()
        )
        found = enumerated_bound(improper, row, BoundSettings("nelbo", noise=noise))
        assert found.value == pytest.approx(integral, rel=1e-9)
        assert found.error == 0 and found.rows == 2**LENGTH - 1


def test_the_nelbo_is_the_any_order_likelihood(improper):
    """E_σ −Σ_j log p(x_σ(j) | x_σ(<j)) by a plain loop over all orders."""
    orders = list(itertools.permutations(range(LENGTH)))
    for _, row in states(improper):
        total = 0.0
        for order in orders:
            for j, at in enumerate(order):
                hidden = [at, *order[j + 1 :]]
                state = row.masked(torch.tensor([hidden]), improper.mask_token)
                p = improper.logits(state, torch.tensor([[at]]))[0, 0, :TOKENS].log_softmax(-1)
                total -= float(p[row.tokens[0, at]])
        mean = float(order_losses(improper, row, torch.tensor(orders)).mean())
        assert mean == pytest.approx(total / len(orders))
        for kind in ("nelbo", "any-order"):
            assert enumerated_bound(improper, row, BoundSettings(kind)).value == pytest.approx(total / len(orders))


def test_with_exact_conditionals_the_nelbo_is_minus_the_log_marginal_and_d3pm_lies_above():
    truth = joint()
    model = TabularMaskedLM.from_joint(truth)
    for tokens, row in states(model):
        exact = -math.log(float(truth[tokens]))
        assert enumerated_bound(model, row, BoundSettings("nelbo")).value == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("noise", ["log-linear", "cosine"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_d3pm_bounds_the_enumerated_marginal_of_its_own_sampler(improper, noise, steps):
    marginal = enumerated(improper, blank(improper), Ancestral(steps, noise))
    assert sum(marginal.values()) == pytest.approx(1)
    for tokens, row in states(improper):
        bound = enumerated_bound(improper, row, BoundSettings("d3pm", time_steps=steps, noise=noise)).value
        assert bound >= -math.log(marginal[tokens]) - 1e-12
        if steps == 1:  # one step: nothing is hidden between, the bound is the likelihood
            assert bound == pytest.approx(-math.log(marginal[tokens]))


def test_the_nelbo_bounds_the_enumerated_marginal_of_first_hitting(improper):
    marginal = enumerated(improper, blank(improper), FirstHitting())
    for tokens, row in states(improper):
        assert enumerated_bound(improper, row, BoundSettings("nelbo")).value > -math.log(marginal[tokens])


@pytest.mark.parametrize("noise", NOISES)
def test_the_t_step_bound_converges_to_the_nelbo(improper, noise):
    """Expectations by enumeration; the difference is of first order in 1/T."""
    _, row = list(states(improper))[5]
    limit = enumerated_bound(improper, row, BoundSettings("nelbo")).value
    gaps = [
        enumerated_bound(improper, row, BoundSettings("d3pm", time_steps=t, noise=noise)).value - limit
        for t in (100, 1000, 10_000)
    ]
    assert abs(gaps[2]) < 1e-3 * limit
    assert abs(gaps[0]) > 5 * abs(gaps[1]) > 25 * abs(gaps[2])


def test_d3pm_terms_are_the_kl_divergences_of_the_posteriors(improper):
    """Σ_k E KL(q(z_k-1 | z_k, x) ‖ p(z_k-1 | z_k)) from the tables of both, position by position."""
    from maskropolis.targets.diffusion.noise import posterior

    steps, mask, size = 3, improper.mask_token, improper.vocabulary_size
    alphas = noise_by_name("cosine").alphas(steps)
    _, row = list(states(improper))[6]
    x = row.tokens[0].tolist()
    total = 0.0
    for k in range(1, steps + 1):
        for m in subsets():
            chance = (1 - alphas[k]) ** len(m) * alphas[k] ** (LENGTH - len(m))
            state = row.masked(torch.tensor([list(m)]), mask)
            p = improper.logits(state, torch.tensor([list(m)]))[0, :, :TOKENS].softmax(-1).numpy()
            for j, at in enumerate(m):
                q = posterior(x[at], mask, mask, size, alphas[k - 1], alphas[k])
                model = sum(p[j, w] * posterior(w, mask, mask, size, alphas[k - 1], alphas[k]) for w in range(TOKENS))
                total += chance * sum(q[v] * math.log(q[v] / model[v]) for v in range(size) if q[v] > 0)
    found = enumerated_bound(improper, row, BoundSettings("d3pm", time_steps=steps, noise="cosine"))
    assert found.value == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        BoundSettings("nelbo", 4000),
        BoundSettings("any-order", 4000),
        BoundSettings("d3pm", 4000, time_steps=5),
        BoundSettings("d3pm", 4000, time_steps=2, noise="cosine"),
    ],
)
def test_estimates_agree_with_the_enumeration_within_their_standard_errors(improper, settings):
    rows = [row for _, row in states(improper)]
    many = type(rows[0])(*(torch.cat([getattr(r, k) for r in rows]) for k in ("tokens", "free", "attention")))
    found = (any_order_bounds if settings.kind == "any-order" else estimated_bounds)(improper, many, settings)
    scores = []
    for row, bound in zip(rows, found, strict=True):
        exact = enumerated_bound(improper, row, settings).value
        scores.append((bound.value - exact) / bound.error)
        assert 0 < bound.error < 0.05 * exact and 4000 <= bound.rows < 4000 + LENGTH
    assert max(map(abs, scores)) < 4.5  # 8 rows: by chance once in 20,000 runs


@pytest.mark.parametrize("estimate", [estimated_bounds, any_order_bounds])
def test_the_standard_error_is_honest(improper, estimate):
    """Its mean square over many seeds is the variance over them."""
    _, row = list(states(improper))[2]
    found = [estimate(improper, row, BoundSettings("nelbo", 8, seed=seed))[0] for seed in range(400)]
    variance = np.var([bound.value for bound in found])
    assert np.mean([bound.error**2 for bound in found]) == pytest.approx(variance, rel=0.35)


def test_estimates_do_not_depend_on_company_and_context_is_never_masked(tiny_bert):
    sequences = tiny_bert.codec.fixed_spans("the cat sat on the mat.", ["on the mat"])
    other = tiny_bert.codec.encode(["a cat"])
    settings = BoundSettings("nelbo", 6)
    alone = estimated_bounds(tiny_bert, sequences, settings, [9])[0]
    from maskropolis.sequences import concatenate

    both = estimated_bounds(tiny_bert, concatenate([other, sequences], 0), settings, [1, 9])[1]
    assert both.value == pytest.approx(alone.value, rel=1e-5)
    held = sequences.rows(torch.tensor([0]))
    none = type(held)(held.tokens, torch.zeros_like(held.free), held.attention)
    for kind in ("nelbo", "d3pm"):
        assert estimated_bounds(tiny_bert, none, BoundSettings(kind, 4))[0].value == 0
    assert any_order_bounds(tiny_bert, none, settings)[0].value == 0
    assert enumerated_bound(tiny_bert, none, settings).value == 0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BoundSettings("elbo"), "did you mean 'nelbo'"),
        (lambda: BoundSettings(samples=3), "even number"),
        (lambda: BoundSettings(samples=0), "even number"),
        (lambda: BoundSettings(time_steps=0), "time steps"),
        (lambda: BoundSettings(noise="none"), "unknown noise schedule"),
    ],
)
def test_settings_that_make_no_sense_are_named(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_long_rows_are_not_enumerated_and_weights_are_a_mean(tiny_bert):
    with pytest.raises(InputError, match="too many to enumerate"):
        enumerated_bound(tiny_bert, tiny_bert.codec.blank([17]), BoundSettings())
    for kind in ("nelbo", "d3pm"):  # Σ_M c(|M|) |M| = n: each token is counted once
        c = coefficients(BoundSettings(kind, time_steps=4), 6)
        shares = [c[m] * m * math.comb(6, m) / 6 for m in range(1, 7)]
        assert sum(shares) == pytest.approx(1)
        assert size_distribution(BoundSettings(kind, time_steps=4), 6) == pytest.approx(shares)
    assert size_distribution(BoundSettings("d3pm", time_steps=1000), 700).sum() == pytest.approx(1)
