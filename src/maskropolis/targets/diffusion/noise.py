"""Noise of absorbing-state diffusion: how many tokens are still visible at time t, and the exact posterior.

    q(z_t | x):        z_t = x with probability α(t), else the mask m;         α(0) = 1, α(1) = 0, falling
    q(z_s | z_t, x):   z_t ≠ m: z_s = x.   z_t = m: z_s = x with (α_s − α_t)/(1 − α_t), m with (1 − α_s)/(1 − α_t)
    weight(t) = −α′(t) / (1 − α(t)),  of the term of time t in the bound on −log p(x)

    log-linear   α = 1 − t                        −log α = −log(1 − t); Lou et al. (2024), SEDD, with ε = 0
    linear       α = (e^(−σt) − e^(−σ))/(1 − e^(−σ))   total noise σt linear in time, shifted so that α(1) = 0
    cosine       α = 1 − cos(π/2 · (1 − t))       Shi et al. (2024), MD4; Sahoo et al. (2024), MDLM
    polynomial   α = 1 − t^p                      Shi et al. (2024)
    d3pm         β_k = 1/(T − k + 1) in step k    Austin et al. (2021), section 3.1; α_k = ∏(1 − β) = 1 − k/T

Everything is float64. α(1) is exactly 0, as the bound needs: with a visible token left at t = 1 it would be infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maskropolis.errors import InputError, unknown_name

Curve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Noise:
    """One schedule. `alpha` and `slope` (= −α′) are functions of t in [0, 1]; `specification` names it."""

    specification: str
    alpha: Curve
    slope: Curve

    def weight(self, time: np.ndarray) -> np.ndarray:
        """−α′(t) / (1 − α(t)) for t in (0, 1]."""
        return self.slope(time) / (1.0 - self.alpha(time))

    def alphas(self, steps: int, highest: float = 1.0) -> np.ndarray:
        """[T + 1] α_k of k = 0 … T steps. `highest` < 1 stops at that share of masks: α_T = 1 − highest.

        Raises `InputError` for less than one step or a share outside (0, 1].
        """
        if steps < 1:
            raise InputError(f"{steps} time steps are too few; expected at least 1")
        if not 0 < highest <= 1:
            raise InputError(f"the highest mask rate is {highest:g}; expected a number above 0 and at most 1")
        alphas = self._grid(steps)
        alphas[0], alphas[-1] = 1.0, 0.0
        return 1.0 - highest * (1.0 - alphas)

    def _grid(self, steps: int) -> np.ndarray:
        return self.alpha(np.arange(steps + 1) / steps)


class DiscreteNoise(Noise):
    """The schedule of D3PM: given by its steps; in continuous time it is the log-linear one."""

    def _grid(self, steps: int) -> np.ndarray:
        beta = 1.0 / (steps - np.arange(1, steps + 1) + 1.0)
        return np.concatenate([[1.0], np.cumprod(1.0 - beta)])


def unmasking(alpha_s: np.ndarray | float, alpha_t: np.ndarray | float) -> np.ndarray:
    """(α_s − α_t)/(1 − α_t): the probability that a position masked at t is visible at the earlier time s."""
    return np.asarray((np.asarray(alpha_s) - alpha_t) / (1.0 - np.asarray(alpha_t)), dtype=np.float64)


def posterior(token: int, noisy: int, mask: int, size: int, alpha_s: float, alpha_t: float) -> np.ndarray:
    """[V] q(z_s | z_t = noisy, x = token), V = `size`. Raises `ValueError` where z_t is impossible given x."""
    if noisy not in (token, mask):
        raise ValueError(f"z_t is {noisy}, which is neither x = {token} nor the mask {mask}")
    out = np.zeros(size)
    if noisy == mask:
        out[token] = unmasking(alpha_s, alpha_t)
        out[mask] = (1.0 - alpha_s) / (1.0 - alpha_t)
    else:
        out[token] = 1.0
    return out


def _log_linear() -> Noise:
    return Noise("log-linear", lambda t: 1.0 - t, np.ones_like)


def _d3pm() -> Noise:
    return DiscreteNoise("d3pm", lambda t: 1.0 - t, np.ones_like)


def _linear(total: float = 5.0) -> Noise:
    scale = -math.expm1(-total)
    return Noise(
        f"linear:total={total:g}",
        lambda t: (np.exp(-total * t) - math.exp(-total)) / scale,
        lambda t: total * np.exp(-total * t) / scale,
    )


def _cosine() -> Noise:
    half = math.pi / 2
    return Noise("cosine", lambda t: 1.0 - np.cos(half * (1.0 - t)), lambda t: half * np.sin(half * (1.0 - t)))


def _polynomial(power: float = 2.0) -> Noise:
    return Noise(f"polynomial:power={power:g}", lambda t: 1.0 - t**power, lambda t: power * t ** (power - 1.0))


_MADE: dict[str, Callable[..., Noise]] = {
    "log-linear": _log_linear,
    "linear": _linear,
    "cosine": _cosine,
    "polynomial": _polynomial,
    "d3pm": _d3pm,
}
_PARAMETER = {"linear": "total", "polynomial": "power"}
NOISES = tuple(_MADE)


def noise_by_name(specification: str) -> Noise:
    """`log-linear`, `cosine`, `polynomial:power=3`, … Raises `InputError` for what makes no sense."""
    name, _, setting = specification.partition(":")
    if name not in _MADE:
        raise unknown_name("noise schedule", name, NOISES)
    if not setting:
        return _MADE[name]()
    key, _, value = setting.partition("=")
    if key != _PARAMETER.get(name):
        expected = f"{name}:{_PARAMETER[name]}=NUMBER" if name in _PARAMETER else f"'{name}' alone"
        raise InputError(f"the noise schedule '{specification}' is malformed; expected {expected}")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number <= 100:
        raise InputError(f"{key} {value!r} of the noise schedule is out of range; expected above 0 and at most 100")
    return _MADE[name](number)
