"""Small models of every architecture, with random weights and a tokenizer of 69 word pieces, for all tests."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

PIECES = [
    *["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", ".", ","],
    *string.ascii_lowercase,
    *("##" + letter for letter in string.ascii_lowercase),
    *["the", "cat", "sat", "on", "mat", "un", "##happy", "##ing", "sleep"],
]
V = len(PIECES)
MASK = PIECES.index("[MASK]")
POSITIONS = 48
SENTENCES = ["the cat sat on the mat.", "unhappy", "a cat, unsleeping, sat on a mat on a mat on the cat"]


def tokenizer() -> Any:
    """A fast WordPiece tokenizer that frames sentences as BERT does."""
    inner = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip


_SHAPE: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": POSITIONS, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
_DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}


def configurations() -> dict[str, Any]:
    """Architecture -> a small configuration."""
    esm = {"mask_token_id": MASK, "position_embedding_type": "rotary", "token_dropout": True}
    modern = {"num_hidden_layers": 4, "local_attention": 8, "cls_token_id": 2, "sep_token_id": 3}
    return {
        "bert": hf.BertConfig(**_SHAPE),
        "roberta": hf.RobertaConfig(**_SHAPE),
        "xlm-roberta": hf.XLMRobertaConfig(**_SHAPE),
        "albert": hf.AlbertConfig(**_SHAPE, embedding_size=16),
        "distilbert": hf.DistilBertConfig(
            vocab_size=V, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=POSITIONS
        ),
        "electra": hf.ElectraConfig(**_SHAPE, embedding_size=16),
        "mpnet": hf.MPNetConfig(**{**_SHAPE, "pad_token_id": 1}),
        "deberta-v2": hf.DebertaV2Config(
            **_SHAPE, **_DISENTANGLED, legacy=False, position_biased_input=False, share_att_key=True,
            position_buckets=8, norm_rel_ebd="layer_norm",
        ),
        "deberta-v2-legacy": hf.DebertaV2Config(**_SHAPE, **_DISENTANGLED, legacy=True, conv_kernel_size=3),
        "esm": hf.EsmConfig(**_SHAPE, **esm),
        "modernbert": hf.ModernBertConfig(**{**_SHAPE, **modern}),
        "big_bird": hf.BigBirdConfig(**_SHAPE, block_size=4, num_random_blocks=1),
        "convbert": hf.ConvBertConfig(**_SHAPE, embedding_size=16),
        "longformer": hf.LongformerConfig(**_SHAPE, attention_window=8),
        "fnet": hf.FNetConfig(
            vocab_size=V, hidden_size=32, num_hidden_layers=2, intermediate_size=48, pad_token_id=0,
            max_position_embeddings=POSITIONS, bos_token_id=2, eos_token_id=3,
        ),
    }  # fmt: skip


FALLBACK = {"longformer"}
PADDING_UNSAFE = {"convbert", "fnet"}


def network(name: str, seed: int = 0) -> Any:
    """A transformers model of the architecture `name`, weights far enough from zero for differences to show."""
    torch.manual_seed(seed)
    model = hf.AutoModelForMaskedLM.from_config(configurations()[name]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


ESM_LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO"


def esm_folder(folder: Path, seed: int = 0) -> Path:
    """An ESM with random weights and its own letter tokenizer (not a fast one), saved."""
    entries = ["<cls>", "<pad>", "<eos>", "<unk>", *ESM_LETTERS, ".", "-", "<null_1>", "<mask>"]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(entries))
    tokenizer = hf.EsmTokenizer(str(vocabulary))
    config = hf.EsmConfig(
        vocab_size=len(entries), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=66, pad_token_id=1, mask_token_id=tokenizer.mask_token_id, token_dropout=True,
        position_embedding_type="rotary", initializer_range=0.3,
    )  # fmt: skip
    return _saved(hf.EsmForMaskedLM, config, tokenizer, folder, seed)


def antibody_folder(folder: Path, seed: int = 0) -> Path:
    """A BERT whose tokenizer wants amino acids between spaces, as protein and antibody BERTs do, saved."""
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *ESM_LETTERS]
    inner = Tokenizer(models.WordPiece({entry: i for i, entry in enumerate(entries)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip
    config = hf.BertConfig(**{**_SHAPE, "vocab_size": len(entries), "initializer_range": 0.3})
    return _saved(hf.BertForMaskedLM, config, tokenizer, folder, seed)


def _saved(family: Any, config: Any, tokenizer: Any, folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    family(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
