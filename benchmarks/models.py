"""The models that are measured: the bundled one, and randomly initialised ones of known shapes."""

from __future__ import annotations

from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from maskropolis.models import load
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM


def bundled() -> HuggingFaceMaskedLM:
    """The English model of the package."""
    return load()


def bert_base_shaped(layers: int = 12) -> HuggingFaceMaskedLM:
    """12 layers of width 768 and 30,522 pieces, random weights."""
    return _random(num_hidden_layers=layers, vocab_size=30522)


def tiny() -> HuggingFaceMaskedLM:
    """2 layers of width 128, random weights."""
    return _random(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512)


def _random(vocab_size: int | None = None, **shape: Any) -> HuggingFaceMaskedLM:
    """Random weights under the tokenizer of the bundled model, whose vocabulary is filled up where more is asked."""
    tokenizer = load().codec.tokenizer
    torch.manual_seed(0)
    config = BertConfig(vocab_size=vocab_size or len(tokenizer), pad_token_id=tokenizer.pad_token_id, **shape)
    return HuggingFaceMaskedLM(BertForMaskedLM(config), tokenizer, name=f"random {shape}")
