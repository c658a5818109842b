"""New masked LMs with random weights, in three sizes and two shapes.

BERT: Devlin et al. (2019), sizes after Turc et al. (2019), *Well-Read Students Learn Better*. ModernBERT: Warner et al.
(2024), rotary positions, gated layers, no biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, BertConfig, ModernBertConfig, PretrainedConfig

from maskropolis.errors import unknown_name
from maskropolis.training.masked.starting import ATTENTION


@dataclass(frozen=True)
class Size:
    """`width` of the hidden states, `layers`, attention `heads`; the inner layer is four times as wide."""

    width: int
    layers: int
    heads: int


SIZES = {"tiny": Size(128, 2, 2), "small": Size(512, 4, 8), "base": Size(768, 12, 12)}
SHAPES = ("bert", "modernbert")


def check(size: str, shape: str) -> None:
    """Raises `InputError` for an unknown size or shape."""
    if size not in SIZES:
        raise unknown_name("size", size, SIZES)
    if shape not in SHAPES:
        raise unknown_name("shape", shape, SHAPES)


def new_model(size: str, shape: str, tokenizer: Any, longest: int, dropout: float, seed: int) -> Any:
    """A masked LM with random weights drawn from `seed`. Raises `InputError` for an unknown size or shape."""
    check(size, shape)
    torch.manual_seed(seed)
    make = _bert if shape == "bert" else _modernbert
    config = make(SIZES[size], tokenizer, longest, dropout)
    return AutoModelForMaskedLM.from_config(config, attn_implementation=ATTENTION)


def _bert(size: Size, tokenizer: Any, longest: int, dropout: float) -> PretrainedConfig:
    return BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        max_position_embeddings=longest,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=tokenizer.pad_token_id,
    )


def _modernbert(size: Size, tokenizer: Any, longest: int, dropout: float) -> PretrainedConfig:
    return ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=2 * size.width,  # gated: two matrices of this width into the layer
        max_position_embeddings=longest,
        embedding_dropout=dropout,
        mlp_dropout=dropout,
        attention_dropout=dropout,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
