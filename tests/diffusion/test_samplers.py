"""Samplers of masked diffusion, enumerated: every outcome with its exact probability, from the code that samples."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from cases import LENGTH, TOKENS, blank, enumerated, joint, total_variation

from maskropolis.decoders.diffusion.ancestral import Ancestral
from maskropolis.decoders.diffusion.confidence import Confidence, surest
from maskropolis.decoders.diffusion.first_hitting import FirstHitting
from maskropolis.decoders.diffusion.remasking import Remasking, reveal_probability
from maskropolis.decoders.diffusion.reverse import blocks, diffuse, stream_source
from maskropolis.decoders.writing import Writing, nucleus
from maskropolis.errors import InputError
from maskropolis.generation import GenerationConfig
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.randomness import START, Streams
from maskropolis.targets.diffusion.noise import noise_by_name


@pytest.fixture(scope="module")
def truth():
    return joint()


@pytest.fixture(scope="module")
def model(truth):
    return TabularMaskedLM.from_joint(truth)


def test_first_hitting_reproduces_the_exact_distribution(model, truth):
    assert total_variation(enumerated(model, blank(model), FirstHitting()), truth) < 1e-14


def test_first_hitting_on_any_model_is_the_mean_over_all_orders():
    model = TabularMaskedLM.random(TOKENS, [LENGTH], seed=3, spread=2.0)
    assert total_variation(enumerated(model, blank(model), FirstHitting()), _mean_over_orders(model)) < 1e-14


def _mean_over_orders(model):
    """Σ_σ 1/n! ∏_j p(x_σ(j) | x_σ(<j)), by a plain loop."""
    out = torch.zeros([TOKENS] * LENGTH, dtype=torch.float64)
    orders = list(itertools.permutations(range(LENGTH)))
    for tokens in itertools.product(range(TOKENS), repeat=LENGTH):
        for order in orders:
            state, probability = blank(model), 1.0
            for at in order:
                logits = model.logits(state, torch.tensor([[at]]))[0, 0, :TOKENS]
                probability *= float(logits.softmax(-1)[tokens[at]])
                state = state.with_tokens(torch.tensor([at]), torch.tensor([tokens[at]]))
            out[tokens] += probability / len(orders)
    return out


def test_ancestral_with_one_step_is_the_product_of_the_marginals(model, truth):
    product = torch.einsum("a,b,c->abc", *(truth.sum([d for d in range(LENGTH) if d != k]) for k in range(LENGTH)))
    assert total_variation(enumerated(model, blank(model), Ancestral(1)), product) < 1e-14


@pytest.mark.parametrize("noise", ["log-linear", "cosine"])
@pytest.mark.parametrize("steps", [2, 3])
def test_ancestral_samples_follow_the_marginal_of_the_t_step_process(model, truth, noise, steps):
    """Against a plain recursion over the states of the T-step process, written without the sampler."""
    expected = _marginal(model, noise_by_name(noise).alphas(steps))
    assert total_variation(enumerated(model, blank(model), Ancestral(steps, noise)), expected) < 1e-14


def _marginal(model, alphas, remasking=Remasking()):
    """p_T(x) by pushing a table over all 3^n states (masks included) through each step of the reverse process."""
    states = list(itertools.product(range(TOKENS + 1), repeat=LENGTH))
    mass = {state: 0.0 for state in states} | {(TOKENS,) * LENGTH: 1.0}
    for k in range(len(alphas) - 1, 0, -1):
        sigma = remasking.sigma(alphas[k - 1], alphas[k])
        reveal = (alphas[k - 1] - (1 - sigma) * alphas[k]) / (1 - alphas[k])
        after = dict.fromkeys(states, 0.0)
        for state, weight in mass.items():
            if weight == 0:
                continue
            row = blank(model).with_tokens(torch.arange(LENGTH)[None], torch.tensor([state]))
            p = model.logits(row, torch.arange(LENGTH)[None])[0].softmax(-1)
            for target in states:
                factor = weight
                for i, (old, new) in enumerate(zip(state, target, strict=True)):
                    if old != TOKENS:
                        factor *= sigma if new == TOKENS else (1 - sigma) * (old == new)
                    else:
                        factor *= 1 - reveal if new == TOKENS else reveal * float(p[i, new])
                after[target] += factor
        mass = after
    out = torch.zeros([TOKENS] * LENGTH, dtype=torch.float64)
    for state, weight in mass.items():
        if TOKENS not in state:
            out[state] = weight
    return out


def test_the_error_of_parallel_unmasking_falls_with_the_steps_and_vanishes_in_the_limit(model, truth):
    """The sampler equals `_marginal` (above), which is cheap for many steps."""
    counts = [1, 2, 4, 16, 64, 256]
    errors = [
        0.5 * float((_marginal(model, noise_by_name("log-linear").alphas(t)) - truth).abs().sum()) for t in counts
    ]
    quoted = "| total variation | " + " | ".join(f"{error:.3f}" for error in errors) + " |"
    assert quoted in (Path(__file__).parents[2] / "docs/diffusion.md").read_text(encoding="utf-8")
    assert errors[0] > 0.05 and errors == sorted(errors, reverse=True)
    assert errors[-1] * 256 == pytest.approx(errors[-2] * 64, rel=0.05)  # of first order in 1/T


def test_infilling_draws_from_the_conditional_given_the_context(model, truth):
    start = blank(model).with_tokens(torch.tensor([1]), torch.tensor([1]))
    conditional = torch.zeros_like(truth)
    conditional[:, 1] = truth[:, 1] / truth[:, 1].sum()
    assert total_variation(enumerated(model, start, FirstHitting()), conditional) < 1e-14


def test_positions_that_are_not_free_keep_even_a_mask(model):
    start = blank(model)
    held = type(start)(start.tokens, torch.tensor([[True, False, True]]), start.attention)
    assert all(tokens[1] == model.mask_token for tokens in enumerated(model, held, FirstHitting()))


def test_blocks_are_written_from_left_to_right_and_stay_exact(model, truth):
    assert [part[0].tolist() for part in blocks(torch.ones(1, 3, dtype=torch.bool), 2)] == [
        [True, True, False],
        [False, False, True],
    ]
    assert total_variation(enumerated(model, blank(model), FirstHitting(), block=2), truth) < 1e-14
    assert total_variation(enumerated(model, blank(model), Ancestral(1), block=1, steps=3), truth) < 1e-14


@pytest.mark.parametrize(("strategy", "eta"), [("cap", 0.3), ("rescale", 0.5)])
def test_remasking_keeps_the_marginals_of_the_noise_process(strategy, eta):
    alphas = noise_by_name("cosine").alphas(8)
    for s, t in itertools.pairwise(alphas):
        sigma = Remasking(strategy, eta).sigma(s, t)
        visible = t * (1 - sigma) + (1 - t) * reveal_probability(s, t, sigma)
        assert visible == pytest.approx(s, abs=1e-14)


@pytest.mark.parametrize("remasking", [Remasking("rescale", 0.5), Remasking("cap", 0.2), Remasking("cap", 0.0)])
def test_remasking_samples_follow_the_marginal_of_its_process(model, remasking):
    expected = _marginal(model, noise_by_name("cosine").alphas(3), remasking)
    found = enumerated(model, blank(model), Ancestral(3, "cosine", remasking=remasking))
    assert total_variation(found, expected) < 1e-14
    plain = enumerated(model, blank(model), Ancestral(3, "cosine"))
    assert (total_variation(plain, expected) < 1e-14) == (remasking.eta == 0)


@pytest.mark.parametrize("order", ["maskgit", "low-confidence", "margin", "entropy"])
def test_confidence_orders_with_one_position_a_step_are_exact_for_margin_and_entropy(model, truth, order):
    """Where the order does not depend on what is drawn, any adaptive order keeps exact conditionals exact."""
    error = total_variation(enumerated(model, blank(model), Confidence(order, LENGTH)), truth)
    assert error < 1e-14 if order in ("margin", "entropy") else error > 0.01


def test_low_confidence_with_temperature_0_is_the_greedy_path(model):
    """Against a plain loop: always the likeliest token at the surest position."""
    row = blank(model)
    for _ in range(LENGTH):
        p = model.logits(row, torch.arange(LENGTH)[None])[0].softmax(-1)
        p[row.tokens[0] != model.mask_token] = -1
        at = int(p.amax(-1).argmax())
        row = row.with_tokens(torch.tensor([at]), p[at].argmax()[None])
    found = enumerated(model, blank(model), Confidence("low-confidence", LENGTH, writing=Writing(0.0)))
    assert found == {tuple(row.tokens[0].tolist()): pytest.approx(1.0)}


def test_choice_temperature_is_gumbel_noise_on_the_scores():
    """Successive draws without replacement against the top 2 of scores with Gumbel noise, 40,000 times."""
    score, temperature, count = torch.tensor([0.1, -0.7, -1.5, -0.2]).double(), 0.8, 40_000
    generator = torch.Generator().manual_seed(5)
    noise = -torch.rand(count, 4, generator=generator, dtype=torch.float64).log().neg().log()
    gumbel = surest(score + temperature * noise, torch.full((count,), 2), 0.0, noise)
    uniforms = torch.rand(count, 4, generator=generator, dtype=torch.float64)
    drawn = surest(score.expand(count, -1), torch.full((count,), 2), temperature, uniforms)
    assert drawn.sum(1).eq(2).all()
    spread = (gumbel.double().var(0) / count + drawn.double().var(0) / count).sqrt()
    assert ((gumbel.double().mean(0) - drawn.double().mean(0)).abs() < 5 * spread).all()


def test_nucleus_and_temperature_shape_what_is_written(model, truth):
    weights = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert nucleus(weights, 0.5).exp()[0].tolist() == pytest.approx([0.5, 0, 0, 0])
    assert nucleus(weights, 0.51).exp()[0].tolist() == pytest.approx([0.5, 0.3, 0, 0])
    assert nucleus(weights, 1e-9).exp()[0].tolist() == pytest.approx([0.5, 0, 0, 0])
    cooled = enumerated(model, blank(model), Ancestral(1, writing=Writing(0.5)))
    marginals = [truth.sum([d for d in range(LENGTH) if d != k]) ** 2 for k in range(LENGTH)]
    product = torch.einsum("a,b,c->abc", *(m / m.sum() for m in marginals))
    assert total_variation(cooled, product) < 1e-14


def test_steps_without_a_change_cost_no_forward_and_chains_do_not_depend_on_company(tiny_bert):
    start = tiny_bert.codec.blank([6, 4, 6])
    chains = [0, 1, 2]
    sampler = Ancestral(64)

    def run(rows):
        streams = Streams(7, [chains[i] for i in rows], START)
        part = start.rows(torch.tensor(rows)).trimmed()
        return diffuse(tiny_bert, part, sampler, stream_source(streams, start.width, part.device))

    together, alone = run([0, 1, 2]), run([1])
    assert together.sequences.tokens[1].tolist()[:6] == alone.sequences.tokens[0].tolist()
    assert not (together.sequences.tokens == tiny_bert.mask_token).any()
    assert together.rows <= 16 and together.steps == 64 and together.idle > 0.9


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Ancestral(0), "too few"),
        (lambda: Ancestral(4, "sine"), "unknown noise schedule"),
        (lambda: Confidence("margins"), "did you mean 'margin'"),
        (lambda: Confidence(count=0), "too few"),
        (lambda: Confidence(choice_temperature=-1), "choice temperature"),
        (lambda: Writing(-1), "temperature"),
        (lambda: Writing(1e300), "expected 0, or a number from 1e-06 to 1e.06"),
        (lambda: GenerationConfig(chains=10**9), "1000000000 chains are too many"),
        (lambda: GenerationConfig(steps=10**13), "10000000000000 steps are too many"),
        (lambda: Writing(top_p=0), "top-p"),
        (lambda: Remasking("caps"), "did you mean 'cap'"),
        (lambda: Remasking("cap", 2), "eta"),
    ],
)
def test_settings_that_make_no_sense_are_named(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_an_empty_block_is_refused(model):
    with pytest.raises(InputError, match="block of 0"):
        diffuse(model, blank(model), FirstHitting(), lambda step: torch.rand(1, 3, 3), block=0)
