"""Denoiser, score, bound and Langevin dynamics against closed forms: mixtures of Gaussians with a mode a text."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from cases import joint
from gaussian_cases import ON_A_LINE, PRIORS, law, log_density, rows, tabular

from maskropolis.decoders.langevin import Langevin, langevin
from maskropolis.errors import InputError
from maskropolis.models.reference.tabular_denoiser import TabularDenoiser
from maskropolis.randomness import START, Streams
from maskropolis.targets.diffusion.denoising import mean, score
from maskropolis.targets.diffusion.gaussian_bound import GaussianSettings, gaussian_bounds, recovered


def independent(length: int) -> torch.Tensor:
    table = PRIORS
    for _ in range(length - 1):
        table = table[..., None] * PRIORS
    return table


@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.0])
def test_the_score_is_the_gradient_of_the_log_density(sigma):
    """Tweedie's formula on dependent positions, against automatic differentiation of the mixture written out."""
    generator = torch.Generator().manual_seed(0)
    table = joint(length=2, tokens=4)
    embeddings = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    noisy = (2 * torch.randn(6, 2, 3, generator=generator, dtype=torch.float64)).requires_grad_()
    (truth,) = torch.autograd.grad(log_density(table, embeddings, noisy, sigma).sum(), noisy)
    blank = rows(torch.full((6, 2), 4))
    denoiser = TabularDenoiser(table, embeddings, 0.1, 4.0)
    found = score(denoiser, blank, noisy.detach(), torch.full((6,), sigma), blank.free)
    assert torch.allclose(found, truth, atol=1e-10)


def test_context_without_noise_is_conditioned_on():
    table, sigma = joint(length=2, tokens=3), 0.7
    sequences = rows(torch.tensor([[1, 3], [2, 3]]))
    where = torch.tensor([[False, True]] * 2)
    noisy = torch.full((2, 2, 1), 0.4, dtype=torch.float64)
    found = mean(tabular(table), sequences, noisy, torch.full((2,), sigma), where)
    fit = (table[[1, 2]].log() - (0.4 - ON_A_LINE[:3, 0]).square() / (2 * sigma**2)).softmax(-1)
    assert torch.allclose(found[:, 1, 0], fit @ ON_A_LINE[:3, 0], atol=1e-12) and not found[:, 0].any()


def test_batches_do_not_change_the_mean():
    denoiser = tabular(independent(2))
    blank = rows(torch.full((9, 2), 3))
    noisy, sigmas = torch.linspace(-2, 2, 18, dtype=torch.float64).view(9, 2, 1), torch.linspace(0.2, 3, 9)
    whole = mean(denoiser, blank, noisy, sigmas, blank.free)
    denoiser.budget.tokens = 5
    assert torch.equal(mean(denoiser, blank, noisy, sigmas, blank.free), whole)


def test_the_bound_of_independent_tokens_is_their_entropy_and_the_mismatch_of_the_prior():
    """Information and mean squared error: the integral is exact, so what is left is KL(p_σ1 ‖ N(0, σ_1²))."""
    denoiser, copies = tabular(independent(2)), 50
    every = torch.cartesian_prod(torch.arange(3), torch.arange(3)).repeat(copies, 1)
    bounds = gaussian_bounds(denoiser, rows(every), GaussianSettings(samples=32))
    weight = PRIORS[every].prod(-1) / copies
    value = sum(float(w) * bound.value for w, bound in zip(weight, bounds, strict=True))
    error = math.sqrt(sum((float(w) * bound.error) ** 2 for w, bound in zip(weight, bounds, strict=True)))
    x = torch.linspace(-30, 30, 20001, dtype=torch.float64)
    normal = (-x.square() / 32 - 0.5 * math.log(32 * math.pi)).exp()
    smoothed = (PRIORS * (-(x[:, None] - ON_A_LINE[:3, 0]).square() / 32).exp()).sum(-1) / math.sqrt(32 * math.pi)
    mismatch = float(torch.trapezoid(smoothed * (smoothed / normal).log(), x))
    expected = 2 * (float(-(PRIORS * PRIORS.log()).sum()) + mismatch)
    assert error < 0.05 and abs(value - expected) < 4 * error
    assert bounds[0].rows == 32 + 4


def test_denoising_is_the_cross_entropy_at_one_level():
    """Of one token, against quadrature."""
    sigma, token = 0.6, 1
    bounds = gaussian_bounds(
        tabular(PRIORS), rows(torch.full((200, 1), token)), GaussianSettings("denoising", 32, sigma)
    )
    x = torch.linspace(-6, 6, 4001, dtype=torch.float64)
    likely = (-(x - ON_A_LINE[token, 0]).square() / (2 * sigma**2)).exp() / (sigma * math.sqrt(2 * math.pi))
    posterior = (PRIORS.log() - (x[:, None] - ON_A_LINE[:3, 0]).square() / (2 * sigma**2)).log_softmax(-1)
    expected = float(torch.trapezoid(-likely * posterior[:, token], x))
    value = sum(bound.value for bound in bounds) / len(bounds)
    error = math.sqrt(sum(bound.error**2 for bound in bounds)) / len(bounds)
    assert error < 0.02 and abs(value - expected) < 4 * error
    assert recovered(tabular(PRIORS), rows(torch.full((50, 1), token)), 0.1) == 1.0


def test_langevin_samples_follow_the_law_of_the_dynamics():
    """Frequencies of 1,000 chains within four standard errors of the law, computed by quadrature."""
    settings, chains = Langevin(levels=8, steps=24), 1000
    denoiser, blank = tabular(PRIORS), rows(torch.full((chains, 1), 3))
    done = langevin(denoiser, blank, settings, Streams(1, range(chains), START))
    truth = law(PRIORS, ON_A_LINE, settings)
    found = done.sequences.tokens[:, 0].bincount(minlength=3)[:3] / chains
    assert ((found - truth).abs() < 4 * (truth * (1 - truth) / chains).sqrt()).all()
    assert done.rows == chains * 25


def test_the_law_of_the_dynamics_approaches_the_priors_as_the_guide_says():
    """The table of `docs/denoising.md`; a single level keeps the tokens that it started near."""
    text = (Path(__file__).parents[2] / "docs" / "denoising.md").read_text(encoding="utf-8")
    levels, said = (
        [float(cell) for cell in line.split("|")[2:-1]]
        for line in text.splitlines()
        if line.startswith(("| levels", "| total variation"))
    )
    found = [
        0.5 * float((law(PRIORS, ON_A_LINE, Langevin(int(size), 4 * int(size))) - PRIORS).abs().sum())
        for size in levels
    ]
    assert found == pytest.approx(said, abs=6e-4)
    assert len(said) == 5 and said == sorted(said, reverse=True)


def test_a_chain_depends_on_its_own_stream_and_both_ways_of_decoding_agree_at_little_noise():
    denoiser, settings = tabular(independent(2)), Langevin(4, 8)
    both = langevin(denoiser, rows(torch.full((3, 2), 3)), settings, Streams(5, range(3), START))
    alone = langevin(denoiser, rows(torch.full((1, 2), 3)), settings, Streams(5, [2], START))
    assert torch.allclose(both.noisy[2], alone.noisy[0])
    nearest = langevin(
        denoiser, rows(torch.full((3, 2), 3)), Langevin(4, 8, decode="nearest"), Streams(5, range(3), START)
    )
    assert torch.equal(nearest.noisy, both.noisy) and nearest.rows == both.rows - 3
    assert torch.equal(nearest.sequences.tokens, (nearest.noisy - ON_A_LINE[:3, 0]).abs().argmin(-1))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"levels": 0}, "multiple of the levels"),
        ({"levels": 5, "steps": 12}, "12 steps of Langevin dynamics cannot be shared equally among 5"),
        ({"step_size": 2.0}, "step size 2 is out of range"),
        ({"high": -1.0}, "noise level -1"),
        ({"decode": "nearst"}, "did you mean 'nearest'"),
    ],
)
def test_dynamics_that_make_no_sense_are_named(settings, says):
    with pytest.raises(InputError, match=says):
        Langevin(**settings)


def test_levels_that_the_denoiser_does_not_know_are_named():
    with pytest.raises(InputError, match="outside of what this model was trained on"):
        Langevin(high=5.0).ladder(tabular(PRIORS))
    with pytest.raises(InputError, match=r"σ = 9 is outside"):
        gaussian_bounds(tabular(PRIORS), rows(torch.tensor([[0]])), GaussianSettings("denoising", sigma=9.0))
    with pytest.raises(InputError, match="3 noisy copies"):
        GaussianSettings(samples=3)
