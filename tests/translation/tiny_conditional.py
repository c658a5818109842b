"""A tiny conditional model with random weights, few tokens and a word-level tokenizer, for tests by enumeration."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from maskropolis.models.conditional.config import ConditionalConfig
from maskropolis.models.conditional.encoder_decoder import ConditionalMaskedLM
from maskropolis.models.conditional.network import ConditionalNetwork

SPECIAL = ["<pad>", "</s>", "<unk>", "<mask>"]


def tokenizer(words: str = "a b c") -> Any:
    """Words split at spaces; `</s>` behind a source."""
    vocabulary = {piece: i for i, piece in enumerate([*SPECIAL, *words.split()])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", mask_token="<mask>"
    )


def model(words: str = "a b c", seed: int = 0, spread: float = 1.0, **changes: Any) -> ConditionalMaskedLM:
    """Random weights, large enough for the conditionals to depend on source and context."""
    made = tokenizer(words)
    sizes = {"d_model": 8, "heads": 2, "feed_forward": 16, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    longest = {"max_source_positions": 12, "max_target_positions": 10}
    torch.manual_seed(seed)
    network = ConditionalNetwork(ConditionalConfig(vocab_size=len(made), **{**sizes, **longest, **changes})).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(spread * 0.4 * torch.randn_like(parameter))
    return ConditionalMaskedLM(network, made, name="tiny-conditional")
