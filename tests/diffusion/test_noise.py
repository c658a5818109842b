"""Noise schedules: ends, slopes, and posteriors against Bayes' rule by enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from maskropolis.errors import InputError
from maskropolis.targets.diffusion.noise import noise_by_name, posterior

ALL = ["log-linear", "linear", "linear:total=2", "cosine", "polynomial", "polynomial:power=3", "d3pm"]
SIZE, MASK = 4, 3


@pytest.mark.parametrize("name", ALL)
def test_alpha_falls_from_1_to_0_and_the_slope_is_its_derivative(name):
    noise = noise_by_name(name)
    time = np.linspace(0.01, 0.99, 99)
    assert noise.alpha(np.array([0.0, 1.0])) == pytest.approx([1.0, 0.0], abs=1e-12)
    assert (np.diff(noise.alpha(time)) < 0).all()
    step = 1e-6
    measured = -(noise.alpha(time + step) - noise.alpha(time - step)) / (2 * step)
    assert noise.slope(time) == pytest.approx(measured, rel=1e-6)
    assert noise.weight(time) == pytest.approx(measured / (1 - noise.alpha(time)), rel=1e-6)
    assert noise.specification.startswith(name.split(":")[0])


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("name", ALL)
def test_posteriors_sum_to_one_and_are_what_bayes_says(name, steps):
    alphas = noise_by_name(name).alphas(steps)
    assert alphas[0] == 1 and alphas[-1] == 0 and len(alphas) == steps + 1
    for k in range(1, steps + 1):
        first = _forward(alphas[k - 1])  # q(z_s | x), [x, z_s]
        keep = alphas[k] / alphas[k - 1]
        between = _forward(keep)  # q(z_t | z_s)
        between[MASK] = np.eye(SIZE)[MASK]
        for token in range(SIZE - 1):
            joint = first[token][:, None] * between  # [z_s, z_t]
            for noisy in (token, MASK):
                if joint[:, noisy].sum() == 0:
                    continue
                found = posterior(token, noisy, MASK, SIZE, alphas[k - 1], alphas[k])
                assert found.sum() == pytest.approx(1, abs=1e-14)
                assert found == pytest.approx(joint[:, noisy] / joint[:, noisy].sum(), abs=1e-14)


def _forward(alpha: float) -> np.ndarray:
    """[V, V] the probability of each noisy token given each clean one."""
    table = alpha * np.eye(SIZE)
    table[:, MASK] += 1 - alpha
    return table


def test_d3pm_steps_are_those_of_the_paper_and_equal_the_log_linear_grid():
    alphas = noise_by_name("d3pm").alphas(5)
    assert 1 - alphas[1:] / alphas[:-1] == pytest.approx([1 / (5 - k + 1) for k in range(1, 6)])
    assert alphas == pytest.approx(noise_by_name("log-linear").alphas(5), abs=1e-15)


def test_the_highest_mask_rate_scales_the_masks():
    assert noise_by_name("cosine").alphas(3, 0.15)[-1] == pytest.approx(0.85)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cosin", "did you mean 'cosine'"),
        ("cosine:power=2", "'cosine' alone"),
        ("polynomial:powers=2", "polynomial:power=NUMBER"),
        ("polynomial:power=two", "out of range"),
        ("polynomial:power=0", "out of range"),
        ("linear:total=-1", "out of range"),
    ],
)
def test_schedules_that_make_no_sense_are_named(name, says):
    with pytest.raises(InputError, match=says):
        noise_by_name(name)


def test_bad_steps_and_impossible_posteriors():
    with pytest.raises(InputError, match="too few"):
        noise_by_name("cosine").alphas(0)
    with pytest.raises(InputError, match="highest mask rate"):
        noise_by_name("cosine").alphas(4, 0.0)
    with pytest.raises(ValueError, match="neither"):
        posterior(0, 1, MASK, SIZE, 0.9, 0.5)
