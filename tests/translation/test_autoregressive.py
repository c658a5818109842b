"""The autoregressive baseline: scores, answers that do not depend on their company, models that do not fit."""

from __future__ import annotations

import pytest
import tiny_conditional
import torch
from transformers import BartConfig, BartForConditionalGeneration

from maskropolis.decoders.beam import AutoregressiveTranslator, load_autoregressive
from maskropolis.errors import ModelError

SOURCES = [[4, 1], [5, 5, 6, 4, 4, 1], [6, 5, 1], [4, 4, 4, 5, 6, 6, 5, 4, 1]]


def network():
    torch.manual_seed(3)
    config = BartConfig(
        vocab_size=7, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=24, pad_token_id=0,
        bos_token_id=2, eos_token_id=1, decoder_start_token_id=2, forced_eos_token_id=None, init_std=1.0,
    )  # fmt: skip
    return BartForConditionalGeneration(config).eval()


@torch.inference_mode()
def log_probability(model, source, target):
    """Mean over the target and its end token, one sequence alone."""
    given = torch.tensor([[2, *target]])
    logits = model(input_ids=torch.tensor([source]), decoder_input_ids=given).logits[0].log_softmax(-1)
    return float(logits[range(len(target) + 1), [*target, 1]].mean())


@pytest.mark.parametrize("beam", [1, 3])
def test_scores_are_mean_log_probabilities(beam):
    model = network()
    translator = AutoregressiveTranslator(model, tiny_conditional.tokenizer(), beam=beam)
    complete = 0
    for source, [(target, score)] in zip(SOURCES, translator.translate(SOURCES), strict=True):
        if len(target) < translator.codec.longest_target - 1 and 2 not in target:
            assert score == pytest.approx(log_probability(model, source, target), abs=1e-5)
            complete += 1
    assert complete


@pytest.mark.parametrize("beam", [1, 3])
def test_answers_do_not_depend_on_the_batch(beam):
    translator = AutoregressiveTranslator(network(), tiny_conditional.tokenizer(), beam=beam)
    together = translator.translate(SOURCES)
    for source, found in zip(SOURCES, together, strict=True):
        [[(target, score)]] = translator.translate([source])
        assert target == found[0][0] and score == pytest.approx(found[0][1], abs=1e-5)


def test_a_tokenizer_that_is_not_fast_is_one_line(tmp_path, monkeypatch):
    network().save_pretrained(tmp_path)
    made = tiny_conditional.tokenizer()
    monkeypatch.setattr(type(made), "is_fast", property(lambda self: False))
    made.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="not a fast one"):
        load_autoregressive(str(tmp_path))
