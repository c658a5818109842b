"""Causal architectures used as masked LMs, small and with random weights."""

from __future__ import annotations

import sys

import pytest
import tiny
import torch
import transformers as hf

from maskropolis import cli, load, sample
from maskropolis.errors import InputError, ModelError
from maskropolis.generation import generate
from maskropolis.models.huggingface.causal_as_masked import CausalAsMasked
from maskropolis.sequences import Sequences

_SHAPE = {
    "vocab_size": tiny.V, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 48, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
CONFIGURATIONS = {
    "llama": hf.LlamaConfig(**_SHAPE),  # as LLaDA
    "qwen2": hf.Qwen2Config(**_SHAPE),  # as Dream
    "gemma2": hf.Gemma2Config(**_SHAPE, head_dim=8, sliding_window=4),  # logits are capped after the output layer
}


def network(name):
    torch.manual_seed(1)
    model = hf.AutoModelForCausalLM.from_config(CONFIGURATIONS[name]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def name(request):
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "shift"])
def adapted(request, name):
    return CausalAsMasked(network(name), tiny.tokenizer(), shift=request.param, name=name)


def rows(model):
    return model.codec.encode(["the cat sat on the mat.", "a cat"]).masked(
        torch.tensor([[2, 4], [1, 2]]), model.mask_token
    )


def test_logits_are_those_of_the_full_model_without_causality_and_padding(adapted):
    """Row by row, no padding, all logits of the model itself under a 4D mask of zeros."""
    sequences, at = rows(adapted), torch.tensor([[2, 4], [1, 2]])
    found = adapted.logits(sequences, at)
    for row, length in enumerate(sequences.lengths.tolist()):
        ids = sequences.tokens[row : row + 1, :length]
        full = adapted.model(input_ids=ids, attention_mask=torch.zeros(1, 1, length, length), use_cache=False).logits
        if adapted.shift:
            full = torch.cat([full[:, :1], full[:, :-1]], 1)
        assert torch.allclose(found[row], full[0, at[row]], atol=1e-4)
    assert adapted.padding_safe


def test_every_token_is_seen_from_every_position(adapted):
    sequences = rows(adapted).rows(torch.tensor([0])).trimmed()
    every = torch.arange(sequences.width)[None]
    before = adapted.logits(sequences, every)
    for changed in range(sequences.width):
        token = 5 + int(sequences.tokens[0, changed]) % 40
        after = adapted.logits(sequences.with_tokens(torch.tensor([changed]), torch.tensor([token])), every)
        assert ((after - before).abs().amax(-1) > 0).all()


def test_the_output_layer_runs_where_asked_unless_logits_are_changed_after_it(adapted, name):
    expected = "all positions" if name == "gemma2" else "asked positions"
    assert adapted.output_layer == expected


@pytest.mark.parametrize("name", ["llama", "qwen2"])  # gemma2 has two masks, one of them a sliding window
def test_with_a_causal_mask_in_its_place_the_model_is_itself(name):
    """The 4D mask is what takes causality away: with a causal one the logits are those of the plain call."""
    model = network(name)
    ids = torch.tensor([[2, 60, 61, 62, 3]])
    causal = torch.full((5, 5), torch.finfo(torch.float32).min).triu(1)[None, None]
    assert torch.allclose(model(input_ids=ids, attention_mask=causal).logits, model(input_ids=ids).logits, atol=1e-5)


def test_a_token_of_the_vocabulary_can_serve_as_the_mask(adapted):
    tokenizer = tiny.tokenizer()
    tokenizer.mask_token = None
    by_id = CausalAsMasked(adapted.model, tokenizer, mask_token=5, shift=adapted.shift)
    by_text = CausalAsMasked(adapted.model, tokenizer, mask_token="[unused0]", shift=adapted.shift)
    assert by_id.mask_token == by_text.mask_token == 5 and not by_id.allowed[5]
    assert by_id.fingerprint() == by_text.fingerprint() != adapted.fingerprint()
    assert generate(by_id, length=4, chains=2, sampler="low-confidence", steps=2, temperature=0).rows == 4


def test_generation_and_exact_chains_run_on_it(adapted):
    assert len(generate(adapted, template="the [MASK] sat", chains=2, sampler="margin").texts) == 2
    samples = sample(adapted, length=3, chains=2, start="diffusion", burn_in=1, thin=1)
    assert "[exact]" in samples.signature


def test_what_cannot_serve_is_named_in_one_line(adapted, tmp_path):
    tokenizer = tiny.tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(ModelError, match="names no mask token"):
        CausalAsMasked(adapted.model, tokenizer)
    for bad in ("<mdm>", 9999):
        with pytest.raises(ModelError, match="not a token of the model's vocabulary"):
            CausalAsMasked(adapted.model, tokenizer, mask_token=bad)


class Deaf(CausalAsMasked):
    """As a model whose code ignores the attention mask it is given."""

    def _attention(self, attended):
        length = attended.shape[1]
        causal = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
        return causal.expand(len(attended), 1, -1, -1)


def test_a_model_that_stays_causal_is_refused():
    with pytest.raises(ModelError, match="ignores the tokens to the right"):
        Deaf(network("llama"), tiny.tokenizer())


def test_a_saved_model_is_loaded_with_its_options(tmp_path):
    network("llama").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    loaded = CausalAsMasked.of_causal(str(tmp_path), shift=True, device="cpu")
    direct = CausalAsMasked(network("llama"), tiny.tokenizer(), shift=True)
    assert loaded.fingerprint() == direct.fingerprint() and loaded.loaded_with["device"] == "cpu"
    with pytest.raises(ModelError, match="no model"):
        CausalAsMasked.of_causal(str(tmp_path / "nowhere"))
    assert isinstance(rows(loaded), Sequences)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small LLaMA whose tokenizer names no mask."""
    folder = tmp_path_factory.mktemp("llada")
    network("llama").save_pretrained(folder)
    tokenizer = tiny.tokenizer()
    tokenizer.mask_token = None
    tokenizer.save_pretrained(folder)
    return folder


def test_a_name_says_mask_and_shift(folder):
    by_id = load(f"causal:{folder},mask=5,shift", device="cpu")
    by_text = load(f"causal:{folder},shift,mask=[unused0]", device="cpu")
    assert isinstance(by_id, CausalAsMasked) and by_id.shift and by_id.mask_token == by_text.mask_token == 5
    assert by_id.fingerprint() == by_text.fingerprint()
    assert by_id.name == f"causal:{folder},mask=5,shift"
    assert not load(f"causal:{folder},mask=5", device="cpu").shift


def test_every_command_takes_such_a_name(folder, monkeypatch, capfd):
    arguments = ["--method", "diffusion", "-l", "3", "-c", "1", "--steps", "2"]
    monkeypatch.setattr(sys, "argv", ["maskropolis", "sample", "-m", f"causal:{folder},mask=5", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capfd.readouterr()
    assert not stop.value.code and len(out.splitlines()) == 1 and f"model:causal:{folder},mask=5@" in err


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("causal:{},mask=5,left", InputError, "'left' says nothing of a causal model"),
        ("causal:{},mask=", InputError, "'mask=' says nothing"),
        ("causal:{},mask=9999", ModelError, "mask token 9999 is not a token"),
        ("causal:{}", ModelError, "names no mask token; give its id or text: causal:NAME,mask=TOKEN"),
        ("causal:", InputError, "needs a name"),
        ("causal:{}/nowhere", ModelError, "no model"),
        ("{}", ModelError, "is not a masked language model .*; causal:"),
    ],
)
def test_names_that_cannot_be_served_are_one_line(folder, name, error, says):
    with pytest.raises(error, match=says):
        load(name.format(folder), device="cpu")
