"""First-order differences of energies: against exact ones on tables, finite differences and one-hots on networks."""

from __future__ import annotations

import pytest
import tiny
import torch

from maskropolis import HuggingFaceMaskedLM
from maskropolis.errors import InputError, ModelError
from maskropolis.models.forward.differentiable import slopes_through
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.constraints import Constraints
from maskropolis.targets.constraints.classes import TokenSet
from maskropolis.targets.energy import ENERGIES, NORM
from maskropolis.targets.enumeration import all_states
from maskropolis.targets.gradients import differences, evaluate_with_slopes
from maskropolis.targets.steered import SteeredEnergy
from maskropolis.targets.surrogate import UNMASKED


@pytest.mark.parametrize("energy", ["raw", "norm"])
def test_on_a_table_the_difference_is_what_the_energy_changes_by(energy: str) -> None:
    model = TabularMaskedLM.random(3, [4], seed=1, spread=1.5)
    free = torch.tensor([[True, True, False, True]])
    states = all_states(model, Sequences(torch.zeros(1, 4, dtype=torch.long), free, torch.ones_like(free)))
    target = ENERGIES[energy]
    evaluation, slopes = evaluate_with_slopes(model, target, states)
    plain = target.evaluate(model, states)
    assert torch.equal(evaluation.energy, plain.energy) and torch.equal(evaluation.terms, plain.terms)
    assert evaluation.rows == 3 * plain.rows
    for t in (0, 1, 3):
        at = torch.full((len(states),), t)
        d = differences(model, states, evaluation.conditionals, slopes, at)
        for token in range(3):
            there = target.evaluate(model, states.with_tokens(at, torch.full_like(at, token))).energy
            assert torch.allclose(d[:, token], there - plain.energy, atol=1e-12)


def _double(name: str) -> HuggingFaceMaskedLM:
    return HuggingFaceMaskedLM(tiny.network(name).double(), tiny.tokenizer(), name=name)


def _one(model: HuggingFaceMaskedLM) -> Sequences:
    return model.codec.encode(["the cat sat on."])


@pytest.mark.parametrize("energy", ["raw", "norm"])
def test_on_a_network_it_is_the_derivative_with_respect_to_one_hots(energy: str) -> None:
    """Against the same extension written out: real one-hot rows, a linear direct term, the mask in place of s."""
    model, target = _double("bert"), ENERGIES[energy]
    x, network = _one(model), tiny.network("bert").double()
    vectors, free = network.get_input_embeddings().weight.detach(), x.free[0].nonzero()[:, 0].tolist()
    hot = torch.nn.functional.one_hot(x.tokens[0], tiny.V).double().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for t in free:
        rows = [vectors[model.mask_token] if s == t else hot[s] @ vectors for s in range(x.width)]
        logits = network(inputs_embeds=torch.stack(rows)[None]).logits[0, t]
        scores = logits.log_softmax(-1) if energy == "norm" else logits
        total = total - hot[t] @ scores
    (gradient,) = torch.autograd.grad(total, hot)
    evaluation, slopes = evaluate_with_slopes(model, target, x)
    assert evaluation.energy[0] == pytest.approx(total.item(), rel=1e-6)
    for t in free:
        wanted = gradient[t] - gradient[t, x.tokens[0, t]]
        found = differences(model, x, evaluation.conditionals, slopes, torch.tensor([t]))[0]
        assert torch.allclose(found, wanted, atol=2e-6)  # logits pass through float32


DIFFERENTIABLE = sorted(set(tiny.configurations()) - {"deberta-v2-legacy", "big_bird"})


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_slopes_are_finite_differences_on_every_architecture(name: str) -> None:
    """Along one direction at one position, through the network as it is: its places of padding and masks included."""
    model = _double(name)
    x, embedding = _one(model), model.model.get_input_embeddings()
    at, step = torch.tensor([2]), 1e-3
    masked, token = x.masked(at, model.mask_token), x.tokens_at(at)
    logits, slopes = model.logits_and_slopes(masked, at, token, NORM.term)
    assert torch.allclose(logits, model.logits(masked, at[:, None])[:, 0], atol=1e-5)
    direction = torch.randn(model.input_vectors.shape[1], generator=torch.Generator().manual_seed(0)).double()

    def value(by: float) -> float:
        def moved(module: object, inputs: object, output: torch.Tensor) -> torch.Tensor:
            output = output.clone()
            output[:, 4] += by * direction
            return output

        handle = embedding.register_forward_hook(moved)
        full = model.model(input_ids=masked.tokens, attention_mask=masked.attention.long()).logits
        handle.remove()
        return float(-full[0, 2].log_softmax(-1)[token])

    with torch.no_grad():
        wanted = (value(step) - value(-step)) / (2 * step)
    assert float(slopes[0, 4] @ direction) == pytest.approx(wanted, rel=1e-3, abs=1e-5)


def test_batches_padding_and_inference_mode_make_no_difference(tiny_bert: HuggingFaceMaskedLM) -> None:
    x = tiny_bert.codec.encode(["the cat sat on.", "a cat"])
    evaluation, slopes = evaluate_with_slopes(tiny_bert, NORM, x)
    budget = tiny_bert.budget.tokens
    try:
        tiny_bert.budget.tokens = 4 * x.width  # one row at a time
        with torch.inference_mode():
            again, slopes_again = evaluate_with_slopes(tiny_bert, NORM, x)
    finally:
        tiny_bert.budget.tokens = budget
    alone, slopes_alone = evaluate_with_slopes(tiny_bert, NORM, x.rows(torch.tensor([1])).trimmed())
    assert torch.allclose(again.energy, evaluation.energy, atol=1e-5)
    assert torch.allclose(slopes_again, slopes, atol=1e-5)
    assert torch.allclose(slopes_alone[0], slopes[1, : slopes_alone.shape[1]], atol=1e-5)
    assert not bool(slopes[~x.free].any())
    assert alone.energy[0] == pytest.approx(evaluation.energy[1].item(), abs=1e-5)


def test_where_constraints_fail_the_model_is_not_asked() -> None:
    model = TabularMaskedLM.random(2, [2], seed=1)
    free = torch.ones(1, 2, dtype=torch.bool)
    states = all_states(model, Sequences(torch.zeros(1, 2, dtype=torch.long), free, free))
    only = TokenSet("allow", torch.tensor([True, False, False]))
    target = SteeredEnergy(NORM, lambda sequences: [""] * len(sequences), (), Constraints((only,)))
    evaluation, slopes = evaluate_with_slopes(model, target, states)
    assert evaluation.energy.isfinite().sum() == 1 and evaluation.rows == 3 * 2
    assert not bool(slopes[~evaluation.energy.isfinite()].any())


def test_what_has_no_gradient_says_so(tiny_bert: HuggingFaceMaskedLM) -> None:
    class Plain:
        name = "plain"

    x = tiny_bert.codec.encode(["a cat"])
    with pytest.raises(InputError, match="'plain' gives no gradients; choose a kernel without"):
        evaluate_with_slopes(Plain(), NORM, x)
    with pytest.raises(InputError, match="'unmasked' has no gradient; expected raw or norm"):
        evaluate_with_slopes(tiny_bert, UNMASKED, x)
    unused = torch.nn.Embedding(3, 2)
    with pytest.raises(ModelError, match="one embedding layer"):
        slopes_through(unused, tiny_bert._forward, x, torch.tensor([1]), torch.tensor([5]), NORM.term)
