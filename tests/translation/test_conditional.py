"""The encoder–decoder: bound to sources it is a masked LM; sharing the encoding changes nothing."""

from __future__ import annotations

import pytest
import tiny_conditional
import torch

from maskropolis.errors import InputError
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.conditional.dropout import ByteDropout
from maskropolis.models.conditional.network import ConditionalNetwork
from maskropolis.models.protocol import MaskedLM
from maskropolis.proof.transition import detailed_balance_error, invariance_error, transition_matrix
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import ENERGIES
from maskropolis.targets.enumeration import all_states, exact_distribution

SOURCES = ["a b", "c c a b", "b"]


def bound(model=None, sources=SOURCES):
    model = model or tiny_conditional.model()
    return model.bind([model.source_ids(text, "source") for text in sources])


def random_rows(model, lengths, sources):
    targets = [torch.randint(4, model.vocabulary_size, (n,)).tolist() for n in lengths]
    return model.rows(sources, targets)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("end", ["none", "fixed", "predicted"])
def test_logits_of_a_batch_are_those_of_each_row_alone(norm_first, end):
    model = tiny_conditional.model(norm_first=norm_first, end=end, position_offset=1)
    many = bound(model)
    torch.manual_seed(1)
    rows = random_rows(many, [3, 5, 2, 4], [1, 0, 2, 1])
    positions = torch.tensor([[0, 2], [4, 1], [1, 0], [3, 3]])
    together = many.logits(rows, positions)
    for i in range(len(rows)):
        alone = bound(model, [SOURCES[int(rows.source[i])]])
        one = rows.rows(torch.tensor([i])).trimmed()
        one = Sequences(one.tokens, one.free, one.attention, torch.tensor([0]))
        assert torch.allclose(alone.logits(one, positions[i : i + 1])[0], together[i], atol=1e-5)


def test_the_training_forward_gives_the_same_logits():
    model = tiny_conditional.model()
    many = bound(model)
    rows = random_rows(many, [3, 5, 4], [0, 1, 2])
    sources = Sequences.from_lists(many.sources, [[False] * len(s) for s in many.sources])
    chosen = torch.zeros_like(rows.free)
    chosen[0, 1] = chosen[1, 0] = chosen[1, 4] = chosen[2, 3] = True
    with torch.inference_mode():
        hidden, lengths = model.network(sources.tokens, sources.attention, rows.tokens, rows.attention, chosen)
        logits = model.network.project(hidden)
    asked = many.logits(rows, torch.tensor([[1, 1], [0, 4], [3, 3]]))
    expected = torch.stack([asked[0, 0], asked[1, 0], asked[1, 1], asked[2, 0]])
    assert torch.allclose(logits, expected, atol=1e-5)
    assert [int(row.argmax()) for row in lengths] == [found[0] for found in many.predicted_lengths(1)]


def test_a_bound_model_keeps_the_protocol():
    many = bound()
    assert isinstance(many, MaskedLM)
    assert many.padding_safe and many.max_length == 10
    assert many.allowed.tolist() == [False] * 4 + [True] * 3
    assert many.fingerprint() != bound(sources=["a"]).fingerprint()
    assert many.fingerprint() == bound().fingerprint()


def test_the_source_and_the_context_matter():
    many = bound()
    rows = many.rows([0, 1, 0], [[4, 5, 6], [4, 5, 6], [4, 5, 5]])
    logits = many.logits(rows, torch.zeros(3, 1, dtype=torch.long))[:, 0]
    assert (logits[0] - logits[1]).abs().max() > 1e-3
    assert (logits[0] - logits[2]).abs().max() > 1e-3


@pytest.mark.parametrize("energy", ["raw", "norm"])
@pytest.mark.parametrize(
    "kernel",
    ["single-site", "block:k=2", "path:k=2", "informed", "delayed", "mixture:single-site=1,block(k=3)=1"],
)
def test_kernels_leave_the_distribution_of_translations_invariant(kernel, energy):
    """π_τ(y | x) ∝ exp(−E(y | x)/τ) by the full transition matrix, for the second of three sources."""
    many = bound(tiny_conditional.model("a b"), ["a b", "b b a b", "b"])
    states = all_states(many, many.rows([1], [[4, 4, 4]]))
    assert len(states) == 8 and bool((states.source == 1).all())
    built = build_kernel(kernel, ENERGIES[energy])
    matrix = transition_matrix(many, built, states, temperature=0.8)
    target = exact_distribution(many, ENERGIES[energy], states, 0.8)
    assert invariance_error(matrix, target) < 1e-6
    assert detailed_balance_error(matrix, target) < 1e-6


def test_saved_and_loaded_it_is_the_same(tmp_path):
    model = tiny_conditional.model()
    model.network.save_pretrained(tmp_path)
    again = ConditionalNetwork.from_pretrained(tmp_path).eval()
    assert (tmp_path / "model.safetensors").is_file()
    assert all(
        torch.equal(a, b) for a, b in zip(model.network.state_dict().values(), again.state_dict().values(), strict=True)
    )


def test_bad_sources_are_one_clear_line():
    model = tiny_conditional.model()
    with pytest.raises(InputError, match="source line 3 is empty"):
        model.source_ids("  ", "source line 3")
    with pytest.raises(InputError, match="line 4 has 13 tokens, more than the model's limit of 12"):
        model.source_ids("a " * 12, "line 4")
    assert model.unknown("a 😀 b z 😀") == ["😀", "z"]


@pytest.mark.parametrize("norm_first", [True, False])
def test_training_attention_is_that_of_decoding(norm_first):
    """The plain products, which gradients go through, and the fused kernel give the same states."""
    model = tiny_conditional.model(norm_first=norm_first)
    many = bound(model)
    rows = random_rows(many, [3, 5, 4], [0, 1, 2])
    sources = Sequences.from_lists(many.sources, [[False] * len(s) for s in many.sources])
    given = (sources.tokens, sources.attention, rows.tokens, rows.attention, rows.free)
    plain, _ = model.network(*given)
    with torch.inference_mode():
        fused, _ = model.network(*given)
    assert plain.requires_grad and torch.allclose(plain, fused, atol=1e-5)


def test_dropout_by_bytes_keeps_the_expectation_and_follows_the_seed():
    drop = ByteDropout(0.1)
    x = torch.ones(400, 501)
    torch.manual_seed(3)
    first = drop(x)
    torch.manual_seed(3)
    assert torch.equal(drop(x), first) and not torch.equal(drop(x), first)
    assert float((first == 0).float().mean()) == pytest.approx(26 / 256, abs=3e-3)
    assert float(first.mean()) == pytest.approx(1, abs=3e-3)
    assert torch.equal(drop.eval()(x), x)
