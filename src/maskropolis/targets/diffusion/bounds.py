"""Bounds on −log p(x) of a masked diffusion, in nats, each an expectation over which free positions M are masked.

    L = Σ_M c(|M|) · S(M),     S(M) = −Σ_{i∈M} log p(x_i | x_∖M),     n = |F|

    nelbo       c(m) = ∫_0^1 −α′/(1−α) · (1−α)^m α^(n−m) dt = (m−1)! (n−m)! / n!    whatever the schedule
    d3pm        c(m) = Σ_{k=1}^T (α_{k−1}−α_k)/(1−α_k) · (1−α_k)^m α_k^(n−m)         a KL term for each of T steps
    any-order   L = E_{σ} −Σ_j log p(x_σ(j) | x_σ(<j)), the same as nelbo: a uniform order σ masks each set of size m
                equally often, and there are n sizes: c(m) = 1/(m · C(n, m))

p is SUBS: the mask token has probability 0 and visible tokens are carried over. The tokens that are not free stay
visible throughout. Sources: Austin et al. (2021), D3PM, appendix A.3; Sahoo et al. (2024), MDLM, equation 10; Ou et al.
(2024) and Uria, Murray & Larochelle (2014) for the identity with any-order autoregression.

Given how many positions are masked, all sets of that size are equally likely, so an estimate needs no times: it draws
a size m with probability C(n, m) c(m) m / n, which sums to 1, and averages n · S(M) / m. (Drawing times instead has a
variance that diverges, as ∫ dt / t, for the nelbo.) Sizes are drawn in strata, two in each: half the squared difference
within a stratum is an unbiased estimate of its variance, so the standard error is honest. `any-order` is estimated in
its own way, by whole orders: see `maskropolis.targets.diffusion.any_order`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from maskropolis.errors import InputError, unknown_name
from maskropolis.models.forward.rows import Rows, batches
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import AUXILIARY, Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.diffusion.noise import noise_by_name, unmasking

BOUNDS = ("nelbo", "d3pm", "any-order")
MOST_ENUMERATED = 16  # free positions: 65,535 rows


@dataclass(frozen=True)
class Bound:
    """`value` ≥ −log p(x) in expectation, in nats; `error`: its standard error (0 where it was enumerated)."""

    value: float
    error: float
    rows: int


@dataclass(frozen=True)
class BoundSettings:
    """How a bound is estimated. `samples`: noisy copies of each sequence, an even number. `time_steps` and `noise`: the
    steps T of d3pm and their schedule; the other two are the same for every schedule.

    Raises `InputError` for values out of range.
    """

    kind: str = "nelbo"
    samples: int = 64
    time_steps: int = 1000
    noise: str = "log-linear"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in BOUNDS:
            raise unknown_name("bound", self.kind, BOUNDS)
        if self.samples < 2 or self.samples % 2:
            raise InputError(f"{self.samples} noisy copies are out of range; expected an even number, at least 2")
        noise_by_name(self.noise).alphas(self.time_steps)

    def signature(self) -> str:
        steps = f"{self.noise},T={self.time_steps}," if self.kind == "d3pm" else ""
        return f"{self.kind}({steps}copies={self.samples},seed={self.seed})"


def coefficients(settings: BoundSettings, free: int) -> np.ndarray:
    """[n + 1] float64, c(m) for sets of m masked positions among n = `free`; c(0) = 0."""
    sizes = np.arange(free + 1)
    if settings.kind != "d3pm":
        return np.array([0.0] + [1.0 / (m * math.comb(free, m)) for m in range(1, free + 1)])
    alphas = noise_by_name(settings.noise).alphas(settings.time_steps)
    rates = unmasking(alphas[:-1], alphas[1:])
    now = alphas[1:, None]
    terms = rates[:, None] * (1.0 - now) ** sizes * now ** (free - sizes)
    return np.where(sizes > 0, terms.sum(0), 0.0)


def enumerated_bound(model: MaskedLM, sequence: Sequences, settings: BoundSettings) -> Bound:
    """The bound of one row [1, T] without sampling: all 2^n − 1 sets. Raises `InputError` beyond 16 free positions."""
    places = sequence.free[0].nonzero()[:, 0].tolist()
    if len(places) > MOST_ENUMERATED:
        raise InputError(f"{len(places)} free positions are too many to enumerate; expected at most {MOST_ENUMERATED}")
    if not places:
        return Bound(0.0, 0.0, 0)
    patterns = [bits for bits in itertools.product((False, True), repeat=len(places)) if any(bits)]
    masked = torch.zeros(len(patterns), sequence.width, dtype=torch.bool, device=sequence.device)
    masked[:, places] = torch.tensor(patterns, device=sequence.device)
    sums = masked_losses(model, sequence, torch.zeros(len(patterns), dtype=torch.long), masked)
    weight = torch.from_numpy(coefficients(settings, len(places))).to(sums.device)[masked.sum(1)]
    return Bound(float((weight * sums).sum()), 0.0, len(patterns))


def size_distribution(settings: BoundSettings, free: int) -> np.ndarray:
    """[n] float64, the probability C(n, m) c(m) m / n of m = 1 … n masked positions among n = `free` ≥ 1."""
    if settings.kind != "d3pm":
        return np.full(free, 1.0 / free)
    alphas = noise_by_name(settings.noise).alphas(settings.time_steps)
    rates = unmasking(alphas[:-1], alphas[1:]) * (1.0 - alphas[1:])
    others = np.arange(free)  # masked positions next to a given one: binomial(n − 1, 1 − α_k)
    binomial = math.lgamma(free) - np.array([math.lgamma(m + 1) + math.lgamma(free - m) for m in others.tolist()])
    logs = binomial + _times_log(others, 1.0 - alphas[1:, None]) + _times_log(free - 1 - others, alphas[1:, None])
    weights = (rates[:, None] * np.exp(logs)).sum(0)
    return weights / weights.sum()


def _times_log(count: np.ndarray, value: np.ndarray) -> np.ndarray:
    """count · log(value), 0 where the count is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count == 0, 0.0, count * np.log(value))


def estimated_bounds(
    model: MaskedLM, sequences: Sequences, settings: BoundSettings, streams: list[int] | None = None
) -> list[Bound]:
    """A bound for each row, `settings.samples` model rows each. `streams` [C] key the random numbers (default 0 … C−1),
    so that an estimate does not depend on what else is scored."""
    keys = list(range(len(sequences))) if streams is None else streams
    generator = Streams(settings.seed, keys, AUXILIARY)
    sizes = [torch.from_numpy(size_distribution(settings, n)) if n else None for n in sequences.free_counts.tolist()]
    masked = torch.cat(
        [
            _noisy(sizes, sequences, (copy // 2, settings.samples // 2), generator.wide(copy, 1 + sequences.width))
            for copy in range(settings.samples)
        ]
    ).to(sequences.device)
    chain = torch.arange(len(sequences), device=sequences.device).repeat(settings.samples)
    sums = masked_losses(model, sequences, chain, masked)
    values = sums * sequences.free_counts[chain] / masked.sum(1).clamp(min=1)
    pairs = values.view(settings.samples // 2, 2, len(sequences))
    error = ((pairs[:, 0] - pairs[:, 1]) / 2).square().sum(0).sqrt() / len(pairs)
    rows = [settings.samples if n else 0 for n in sequences.free_counts.tolist()]
    return [Bound(*row) for row in zip(pairs.mean((0, 1)).tolist(), error.tolist(), rows, strict=True)]


def _noisy(sizes: list[Tensor | None], sequences: Sequences, stratum: tuple[int, int], uniforms: Tensor) -> Tensor:
    """[C, T] bool, which free positions are masked in one copy; `uniforms` [C, 1 + T] on the CPU.

    `sizes`: each row's distribution of the number of masks; `stratum`: the first of the numbers out of the second.
    """
    free = sequences.free.cpu()
    level = (stratum[0] + uniforms[:, 0]) / stratum[1]
    size = torch.zeros(len(free), dtype=torch.long)
    for row, weights in enumerate(sizes):
        if weights is not None:
            size[row] = 1 + int((weights.cumsum(0) <= level[row]).sum().clamp(max=len(weights) - 1))
    rank = torch.where(free, uniforms[:, 1:], 2.0).argsort(1).argsort(1)
    return free & (rank < size[:, None])


def masked_losses(model: MaskedLM, sequences: Sequences, chain: Tensor, masked: Tensor) -> Tensor:
    """[N] float64: S(M) of copy j of the row `chain[j]` with `masked[j]` [T] bool hidden; 0 where nothing is."""
    out = torch.zeros(len(chain), dtype=torch.float64, device=sequences.device)
    some = masked.any(1).nonzero()[:, 0]
    if not len(some):
        return out
    order = torch.argsort((~masked[some]).to(torch.uint8), dim=1, stable=True)
    counts = masked[some].sum(1)
    for group in of_like_size(counts):
        most = int(counts[group].max())
        used = torch.arange(most, device=counts.device) < counts[group, None]
        places = torch.where(used, order[group, :most], order[group, :1])
        rows = Rows(chain.to(counts.device)[some[group]], places, places)
        for index, logits in batches(model, sequences, rows):
            truth = sequences.tokens[rows.chain[index, None], places[index]]
            each = -subs(logits, model.mask_token).gather(-1, truth[..., None])[..., 0]
            out[some[group[index]]] = torch.where(used[index], each, 0.0).sum(1)
    return out


def of_like_size(counts: Tensor) -> list[Tensor]:
    """Indices grouped by ⌈log2 of their count⌉, so that few logits are asked for twice."""
    level = (counts.double() - 0.5).log2().ceil().long()
    return [(level == one).nonzero()[:, 0] for one in level.unique().tolist()]


def subs(logits: Tensor, mask_token: int) -> Tensor:
    """Log-probabilities [..., V] float64 in which the mask token is impossible. Sahoo et al. (2024), section 3.2.3."""
    hidden = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
    hidden[mask_token] = True
    return logits.double().masked_fill(hidden, -torch.inf).log_softmax(-1)
