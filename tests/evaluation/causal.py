"""Small causal models with random weights, as folders and as a GGUF file, for the tests of the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("c", "a"), ("Ġ", "ca")]
TOKENS = ["<|endoftext|>", "<s>", "</s>", *LETTERS, *("".join(pair) for pair in MERGES)]
HEADS, KEY_HEADS = 4, 2


def tokenizer(**special: str) -> Any:
    """A byte-level BPE tokenizer of five merges, which puts nothing before a text."""
    inner = Tokenizer(models.BPE({token: i for i, token in enumerate(TOKENS)}, MERGES))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return hf.PreTrainedTokenizerFast(tokenizer_object=inner, **special)


def network(family: str = "llama") -> Any:
    """A GPT-2 or Llama of two layers, its weights far enough from zero for differences to show."""
    torch.manual_seed(3)
    if family == "gpt2":
        config: Any = hf.GPT2Config(vocab_size=len(TOKENS), n_positions=64, n_embd=32, n_layer=2, n_head=4)
    else:
        config = hf.LlamaConfig(
            vocab_size=len(TOKENS), hidden_size=32, num_hidden_layers=2, num_attention_heads=HEADS,
            num_key_value_heads=KEY_HEADS, intermediate_size=48, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def save(folder: Path, family: str = "llama", **special: str) -> Path:
    network(family).save_pretrained(folder)
    tokenizer(**special).save_pretrained(folder)
    return folder


_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}  # fmt: skip
_LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def write_gguf(file: Path) -> None:
    """The Llama of `network` with the tokenizer, unquantised, in the layout of llama.cpp."""
    model = network()
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_name("tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(48)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * 3 + [1] * (len(TOKENS) - 3))
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(_gguf_name(name), _gguf_order(name, tensor).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    _, _, layer, *rest = name.split(".")
    return f"blk.{layer}.{_LAYER_NAMES['.'.join(rest[:-1])]}.weight"


def _gguf_order(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """llama.cpp interleaves the two halves of every rotated head."""
    heads = HEADS if "q_proj" in name else KEY_HEADS if "k_proj" in name else 0
    if not heads:
        return tensor
    rows = tensor.shape[0] // heads // 2
    return tensor.reshape(heads, 2, rows, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)
