"""Import of Mask-Predict checkpoints made with the authors' fork of fairseq (architecture `bert_transformer_seq2seq`).

Their network is ours with post-norm layers (or pre-norm, if so trained), learned positions that start behind the
padding index, GELU, a length token without a position in front of the source, no scaling of embeddings and no output
bias. The target's end token is a token like any other: counted in the length, masked and predicted.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskropolis.errors import InputError, ModelError
from maskropolis.models.conditional.config import ConditionalConfig
from maskropolis.models.conditional.fairseq.dictionary import EOS, MASK, PAD, UNK, read_dictionary, tokenizer_of
from maskropolis.models.conditional.network import ConditionalNetwork

_EPSILON = 1e-12  # of their layer norms
_IGNORED = ("encoder.version", "decoder.version", "decoder.embed_tokens.weight")


@dataclass(frozen=True)
class Imported:
    """The network, its tokenizer, and the number of its parameters."""

    network: ConditionalNetwork
    tokenizer: Any
    parameters: int


def import_fairseq(checkpoint: Path, dictionary: Path | None = None, codes: Path | None = None) -> Imported:
    """The model of a `.pt` checkpoint, of which nothing but tensors and numbers is loaded.

    `dictionary` is by default the `dict.*.txt` beside the checkpoint. `codes`: the byte-pair codes (subword-nmt) that
    the text was split with; without them, sources must come split. Raises `ModelError` or `InputError` in one line.
    """
    arguments, weights = read_checkpoint(checkpoint)
    symbols = read_dictionary(dictionary or _beside(checkpoint))
    _require_shared(weights, checkpoint)
    if len(symbols) != len(weights["encoder.embed_tokens.weight"]):
        raise ModelError(
            f"the dictionary has {len(symbols)} symbols and the checkpoint embeds "
            f"{len(weights['encoder.embed_tokens.weight'])}; they do not belong together"
        )
    config = _config(arguments, weights, checkpoint)
    network = ConditionalNetwork(config)
    renamed = dict(_renamed(weights, config))
    own = network.state_dict()
    if renamed.keys() != own.keys():
        odd = min(renamed.keys() ^ own.keys())
        raise ModelError(f"'{checkpoint}' is not a Mask-Predict model: the weight '{odd}' is missing or unknown")
    for name, tensor in renamed.items():
        if tensor.shape != own[name].shape:
            shapes = f"{tuple(tensor.shape)}; expected {tuple(own[name].shape)}"
            raise ModelError(f"'{checkpoint}': the weight '{name}' has shape {shapes}")
    network.load_state_dict({name: tensor.float() for name, tensor in renamed.items()})
    tokenizer = tokenizer_of(symbols, codes)
    return Imported(network.eval(), tokenizer, sum(p.numel() for p in network.parameters()))


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(the arguments it was trained with, its weights). Raises `ModelError`."""
    if not path.is_file():
        raise ModelError(f"no checkpoint '{path}'; expected a .pt file of fairseq")
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ModelError(f"'{path}' cannot be loaded as tensors only, and nothing else is loaded: {reason}") from None
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise ModelError(f"'{path}' is not a checkpoint of fairseq: it has no entry 'model'")
    arguments = found.get("args")
    named = vars(arguments) if isinstance(arguments, argparse.Namespace) else dict(arguments or {})
    return named, dict(found["model"])


def _beside(checkpoint: Path) -> Path:
    found = sorted(checkpoint.parent.glob("dict.*.txt"))
    if not found:
        raise InputError(f"there is no dict.*.txt beside '{checkpoint}'; name the dictionary with --dictionary")
    if len({path.read_bytes() for path in found}) > 1:
        raise ModelError(f"the dictionaries beside '{checkpoint}' differ; only joined dictionaries can be imported")
    return found[0]


def _require_shared(weights: dict[str, Tensor], checkpoint: Path) -> None:
    first, second = (weights.get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    if first is None or second is None:
        raise ModelError(f"'{checkpoint}' is not a Mask-Predict model: it has no token embeddings on both sides")
    if "decoder.embed_out" in weights or first.shape != second.shape or not torch.equal(first, second):
        raise ModelError(
            f"'{checkpoint}' has separate embeddings; only models with --share-all-embeddings can be imported"
        )


def _config(arguments: dict[str, Any], weights: dict[str, Tensor], checkpoint: Path) -> ConditionalConfig:
    width = weights["encoder.embed_tokens.weight"].shape[1]
    heads = {arguments.get(f"{side}_attention_heads", max(1, width // 64)) for side in ("encoder", "decoder")}
    inner = {weights[f"{side}.layers.0.fc1.weight"].shape[0] for side in ("encoder", "decoder")}
    first = {f"{side}.layer_norm.gamma" in weights for side in ("encoder", "decoder")}
    if len(heads) > 1 or len(inner) > 1 or len(first) > 1:
        raise ModelError(f"the encoder and decoder of '{checkpoint}' are of different shape, which cannot be imported")
    return ConditionalConfig(
        vocab_size=weights["encoder.embed_tokens.weight"].shape[0],
        d_model=width,
        heads=int(heads.pop()),
        encoder_layers=_depth(weights, "encoder"),
        decoder_layers=_depth(weights, "decoder"),
        feed_forward=int(inner.pop()),
        dropout=float(arguments.get("dropout", 0.1)),
        max_source_positions=weights["encoder.embed_positions.weight"].shape[0] - PAD - 1,
        max_target_positions=weights["encoder.embed_lengths.weight"].shape[0],
        norm_first=first.pop(),
        layer_norm_eps=_EPSILON,
        position_offset=PAD + 1,
        output_bias=False,
        end="predicted",
        continuation="@@",
        pad_token_id=PAD,
        eos_token_id=EOS,
        unk_token_id=UNK,
        mask_token_id=MASK,
    )


def _depth(weights: dict[str, Tensor], side: str) -> int:
    return len({name.split(".")[2] for name in weights if name.startswith(f"{side}.layers.")})


_ENCODER = {
    "self_attn.": "self_attn.", "fc1.": "linear1.", "fc2.": "linear2.", "layer_norms.0.": "norm1.",
    "layer_norms.1.": "norm2.",
}  # fmt: skip
_DECODER = {
    "self_attn.": "self_attn.", "encoder_attn.": "multihead_attn.", "fc1.": "linear1.", "fc2.": "linear2.",
    "self_attn_layer_norm.": "norm1.", "encoder_attn_layer_norm.": "norm2.", "final_layer_norm.": "norm3.",
}  # fmt: skip
_OTHERS = {
    "encoder.embed_tokens.weight": "embed.weight", "encoder.embed_positions.weight": "source_positions.weight",
    "encoder.embed_lengths.weight": "lengths.weight", "decoder.embed_positions.weight": "target_positions.weight",
    "encoder.layer_norm.gamma": "encoder_norm.weight", "encoder.layer_norm.beta": "encoder_norm.bias",
    "decoder.layer_norm.gamma": "decoder_norm.weight", "decoder.layer_norm.beta": "decoder_norm.bias",
}  # fmt: skip


def _renamed(weights: dict[str, Tensor], config: ConditionalConfig) -> Iterator[tuple[str, Tensor]]:
    """Our names for their weights; a name that is not known stays as it is."""
    for name, tensor in weights.items():
        if name in _IGNORED:
            continue
        if name in _OTHERS:
            yield _OTHERS[name], tensor
            continue
        side, *rest = name.split(".layers.")
        if side not in ("encoder", "decoder") or len(rest) != 1:
            yield name, tensor
            continue
        number, _, inner = rest[0].partition(".")
        table = _ENCODER if side == "encoder" else _DECODER
        known = next((theirs for theirs in table if inner.startswith(theirs)), None)
        if known is not None:
            inner = table[known] + inner.removeprefix(known)
        yield f"{side}.{number}.{inner.replace('gamma', 'weight').replace('beta', 'bias')}", tensor
