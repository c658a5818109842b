"""Chains on a real third-party model against the exact distribution of two free positions of a reaction.

Every run gives independent samples: many chains, one sample each, after more steps than forgetting the start takes.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor

import maskropolis
from maskropolis import HuggingFaceMaskedLM
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.reference.shortlist import ShortlistMaskedLM
from maskropolis.proof.transition import total_variation, transition_matrix
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import ENERGIES, block_conditionals
from maskropolis.targets.enumeration import all_states, exact_distribution

REACTION = "CC(=O)[MASK].NCC>>CC(=O)[MASK]CC"
"""An acid derivative and ethylamine: what leaves and what stays are free."""


@pytest.fixture(scope="module")
def reactions(rxnmapper_folder: Path) -> HuggingFaceMaskedLM:
    return maskropolis.load(str(rxnmapper_folder), tokenizer="smiles", device="cpu", allow_pickle=True)


@pytest.fixture(scope="module")
def template(reactions: HuggingFaceMaskedLM) -> Sequences:
    return reactions.codec.template([REACTION])


def _remembering(
    model: HuggingFaceMaskedLM, template: Sequences, tokens: Tensor
) -> tuple[ShortlistMaskedLM, Sequences]:
    """The model over `tokens`, rows computed once and remembered; and the template with the first token filled in."""
    narrow = ShortlistMaskedLM(model, tokens, template)
    free = template.free[0].nonzero()[:, 0][None]
    return narrow, narrow.narrow(template.with_tokens(free, tokens[:1].expand_as(free)))


def _likeliest(model: HuggingFaceMaskedLM, template: Sequences, count: int) -> Tensor:
    """The tokens that are likeliest at either of the two positions."""
    free = template.free[0].nonzero()[:, 0][None]
    logits = block_conditionals(model, template, free)[0].masked_fill(~model.allowed, -torch.inf)
    return logits.log_softmax(-1).amax(0).topk(count).indices


def _samples(model, kernel, start: Sequences, chains: int, steps: int, temperature: float, seed: int) -> Tensor:
    """Tokens [chains, T] of independent chains after `steps` steps from `start`."""
    streams = Streams(seed, range(chains))
    state = kernel.init(model, start.rows(torch.zeros(chains, dtype=torch.long)))
    for step in range(steps):
        state, _ = kernel.step(model, state, temperature, streams.uniforms(step, kernel.uniforms_per_step))
    return state.sequences.tokens


KERNELS = [
    "single-site",
    "single-site:scan=left-to-right",
    "block",
    "path:k=2",
    "informed",
    "delayed:kernel=single-site,surrogate=grouped/1",
]


@pytest.mark.parametrize("energy", ["raw", "norm"])
@pytest.mark.parametrize("specification", KERNELS)
def test_frequencies_on_a_shortlist(reactions, template, specification: str, energy: str) -> None:
    """36 pairs: the transition matrix tells how many steps forget the start; then a chi-square test of 1,500 chains."""
    model, start = _remembering(reactions, template, _likeliest(reactions, template, 6))
    states, temperature = all_states(model, start), 1.5
    kernel = build_kernel(specification, ENERGIES[energy])
    exact = exact_distribution(model, ENERGIES[energy], states, temperature)
    matrix = transition_matrix(model, kernel, states, temperature, 0)
    if "scan" in specification:
        matrix = matrix @ transition_matrix(model, kernel, states, temperature, 1)
    reached, steps = (states.tokens == start.tokens).all(1).double(), 0
    while total_variation(reached, exact) > 1e-3:
        reached, steps = reached @ matrix, steps + (2 if "scan" in specification else 1)
        assert steps < 200, "the chain does not forget its start"
    tokens = _samples(model, kernel, start, 1500, steps, temperature, seed=1)
    counts = (tokens[:, None] == states.tokens).all(2).sum(0)
    assert _chi_square(counts, exact) > 1e-3


def _chi_square(counts: Tensor, exact: Tensor) -> float:
    """p-value of counts [S] under exact [S]; cells of fewer than five expected counts are taken together."""
    total = int(counts.sum())
    small = exact * total < 5
    observed, expected = counts[~small].double(), exact[~small] * total
    if bool(small.any()):
        observed = torch.cat([observed, counts[small].sum()[None].double()])
        expected = torch.cat([expected, exact[small].sum()[None] * total])
    assert len(expected) > 3
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, len(expected) - 1))


PAIRS = [("single-site", "norm"), ("path:k=2", "raw"), ("informed", "norm")]


@pytest.mark.parametrize(("specification", "energy"), PAIRS)
def test_frequencies_over_all_pairs(reactions, template, specification: str, energy: str) -> None:
    """All pairs of allowed tokens, enumerated by a few lines of their own; the distance is bounded by the sample size.

    For N independent samples E[TV] ≤ ½ Σ √(p(1−p)/N), and TV exceeds that by t with probability at most exp(−2Nt²).
    """
    temperature, chains, steps = 0.7, 1000, 60
    tokens = reactions.allowed.nonzero()[:, 0]
    exact = _pair_distribution(reactions, template, tokens, energy, temperature)
    model, start = _remembering(reactions, template, tokens)
    kernel = build_kernel(specification, ENERGIES[energy])
    found = _samples(model, kernel, start, chains, steps, temperature, seed=2)
    first, second = template.free[0].nonzero()[:, 0].tolist()
    counts = torch.zeros_like(exact).index_put_(
        (found[:, first], found[:, second]), torch.ones(chains, dtype=torch.float64), accumulate=True
    )
    expected = float((exact * (1 - exact) / chains).sqrt().sum() / 2)
    bound = expected + math.sqrt(math.log(1e6) / (2 * chains))
    distance = total_variation(counts / chains, exact)
    print(f"{specification}, {energy}: total variation {distance:.3f}, bound {bound:.3f}")
    assert distance < bound < 0.2


def _pair_distribution(model, template: Sequences, tokens: Tensor, energy: str, temperature: float) -> Tensor:
    """π [M, M] over the tokens at the two free positions, straight from the network's full output."""
    first, second = template.free[0].nonzero()[:, 0].tolist()
    scores = []
    for masked, other in ((first, second), (second, first)):
        ids = template.tokens.repeat(len(tokens), 1)
        ids[:, masked], ids[:, other] = model.mask_token, tokens
        with torch.inference_mode():
            logits = torch.cat([model.model(input_ids=part).logits[:, masked] for part in ids.split(64)]).double()
        scores.append((logits if energy == "raw" else logits.log_softmax(-1))[:, tokens])
    log_weights = (scores[0].T + scores[1]) / temperature  # [token at first, token at second]
    return torch.softmax(log_weights.flatten(), 0).view(len(tokens), len(tokens))
