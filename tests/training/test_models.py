"""What a run starts from: learnt and pruned vocabularies, new models, encoders that get an output layer."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertModel, GPT2Config, GPT2LMHeadModel

from maskropolis.errors import InputError, ModelError
from maskropolis.training.data import pruning
from maskropolis.training.data.vocabulary import learn
from maskropolis.training.masked import starting
from maskropolis.training.masked.prediction import Predictor
from maskropolis.training.masked.scratch import new_model


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_a_learnt_vocabulary_spells_the_text_and_survives_saving(tmp_path, paragraphs, kind):
    tokenizer = learn(lambda: iter(paragraphs), kind, 500, lowercase=False, longest=64)
    assert len(tokenizer) == 500 and tokenizer.model_max_length == 64
    ids = tokenizer(paragraphs, verbose=False)["input_ids"]
    assert not any(tokenizer.unk_token_id in row for row in ids)
    assert all(row[0] == tokenizer.cls_token_id and row[-1] == tokenizer.sep_token_id for row in ids)
    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)(paragraphs[0])["input_ids"] == ids[0]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_a_vocabulary_is_the_same_in_every_process(tmp_path, paragraphs, kind):
    (tmp_path / "text").write_text("\n".join(paragraphs), encoding="utf-8")
    script = (
        "import sys; from maskropolis.training.data.vocabulary import learn\n"
        "lines = open(sys.argv[1], encoding='utf-8').read().splitlines()\n"
        f"print(sorted(learn(lambda: iter(lines), '{kind}', 500, True, 64).get_vocab().items()))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "text")]
    ways = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)}
    assert len(ways) == 1
    assert ("##" in ways.pop()) == (kind == "wordpiece")


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 60), ("bpe", 200)])
def test_a_vocabulary_too_small_for_the_alphabet(paragraphs, kind, size):
    with pytest.raises(InputError, match="too small for the alphabet"):
        learn(lambda: iter(paragraphs), kind, size, lowercase=True, longest=64)


def test_unknown_names_are_corrected(tokenizer):
    with pytest.raises(InputError, match="did you mean 'wordpiece'"):
        learn(lambda: iter(["x"]), "word-piece", 100, lowercase=True, longest=64)
    with pytest.raises(InputError, match="unknown size 'huge'"):
        new_model("huge", "bert", tokenizer, 64, 0.0, 0)
    with pytest.raises(InputError, match="unknown shape"):
        new_model("tiny", "gpt", tokenizer, 64, 0.0, 0)


@pytest.mark.parametrize("shape", ["bert", "modernbert"])
def test_new_models_run_at_chosen_positions_and_repeat(tokenizer, shape):
    model, same = (new_model("tiny", shape, tokenizer, 64, 0.0, 3).eval() for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))
    tokens = torch.arange(5, 25).view(2, 10)
    chosen = torch.zeros(2, 10, dtype=torch.bool)
    chosen[0, 3] = chosen[1, 7] = True
    predictor = Predictor(model)
    assert predictor._parts is not None
    with torch.inference_mode():
        torch.testing.assert_close(predictor.logits(tokens, chosen), model(input_ids=tokens).logits[chosen])


def test_pruning_keeps_the_frequent_and_spells_the_rest(paragraphs):
    full = learn(lambda: iter(paragraphs), "wordpiece", 1500, lowercase=True, longest=64)
    few, old = pruning.prune(full, iter(paragraphs), 600)
    names = full.convert_ids_to_tokens(old.tolist())
    assert len(few) == len(old) == 600 and few.convert_ids_to_tokens(range(600)) == names
    assert few.cls_token_id == names.index("[CLS]") and few("time")["input_ids"][0] == few.cls_token_id
    ids = few(paragraphs, verbose=False)["input_ids"]
    assert not any(few.unk_token_id in row for row in ids)
    for line, row in zip(paragraphs, ids, strict=True):
        rebuilt = "".join(few.convert_ids_to_tokens(row[1:-1])).replace("##", "")
        assert rebuilt == full.backend_tokenizer.normalizer.normalize_str(line).replace(" ", "")
    assert {"a", "##a", "z"} <= set(names)


def test_pruning_cannot_go_below_the_characters_or_cut_byte_pairs(paragraphs, tokenizer):
    with pytest.raises(InputError, match="too small"):
        pruning.prune(tokenizer, iter(paragraphs), 40)
    pairs = learn(lambda: iter(paragraphs), "bpe", 400, lowercase=True, longest=64)
    with pytest.raises(InputError, match="only a WordPiece"):
        pruning.prune(pairs, iter(paragraphs), 300)


def test_plain_marks_make_both_spellings_one_text(tokenizer, tmp_path):
    pruning.with_plain_marks(tokenizer).save_pretrained(tmp_path)
    plain = AutoTokenizer.from_pretrained(tmp_path)
    assert plain("“Don’t—wait…”")["input_ids"] == plain('"Don\'t—wait..."')["input_ids"]
    assert tokenizer("“")["input_ids"] != tokenizer('"')["input_ids"]


def test_kept_tokens_keep_their_logits(tiny):
    old = np.array([0, 1, 2, 3, 4, 10, 20, 30])
    with torch.no_grad():
        tiny.get_output_embeddings().bias.normal_()
        before = tiny(input_ids=torch.tensor([[2, 10, 20, 4, 3]])).logits[..., old]
        starting.keep_tokens(tiny, old)
        after = tiny(input_ids=torch.tensor([[2, 5, 6, 4, 3]])).logits
    torch.testing.assert_close(before, after)
    assert tiny.get_output_embeddings().weight is tiny.get_input_embeddings().weight


def test_the_output_bias_is_the_log_frequency(tiny, tokenizer):
    counts = np.arange(len(tokenizer))
    starting.start_output_bias(tiny, counts)
    bias = tiny.get_output_embeddings().bias.detach().numpy()
    assert np.exp(bias).sum() == pytest.approx(1, abs=1e-5) and bias[7] - bias[3] == pytest.approx(np.log(2), abs=1e-5)


def test_an_encoder_gets_a_plain_head(tiny, tmp_path):
    tiny.bert.save_pretrained(tmp_path / "encoder")
    model = starting.load_model(str(tmp_path / "encoder"))
    assert torch.equal(model.bert.encoder.layer[0].output.dense.weight, tiny.bert.encoder.layer[0].output.dense.weight)
    assert torch.equal(model.cls.predictions.transform.dense.weight, torch.eye(16))
    assert model.config.hidden_dropout_prob == 0
    assert starting.load_model(str(tmp_path / "encoder"), dropout=0.3).bert.embeddings.dropout.p == 0.3


def test_inits_that_are_no_encoders(tmp_path, tiny):
    with pytest.raises(ModelError, match=r"without config\.json"):
        starting.load_model(str(tmp_path))
    GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50)).save_pretrained(tmp_path / "gpt")
    with pytest.raises(ModelError, match="not an encoder"):
        starting.load_model(str(tmp_path / "gpt"))
    BertModel(tiny.config).save_pretrained(tmp_path / "bert")
    from safetensors.torch import load_file, save_file

    tensors = load_file(tmp_path / "bert" / "model.safetensors")
    kept = {k: v for k, v in tensors.items() if "layer.0" not in k}
    save_file(kept, tmp_path / "bert" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="weights are missing"):
        starting.load_model(str(tmp_path / "bert"))
    with pytest.raises(ModelError, match="no tokenizer"):
        starting.load_tokenizer(str(tmp_path / "nothing"))


def test_a_saved_masked_language_model_is_loaded_as_it_is(saved, tiny):
    loaded = starting.load_model(str(saved)).eval()
    tokens = torch.arange(5, 15)[None]
    with torch.inference_mode():
        torch.testing.assert_close(loaded(input_ids=tokens).logits, tiny(input_ids=tokens).logits)
    assert AutoModelForMaskedLM.from_pretrained(saved).config.vocab_size == tiny.config.vocab_size
