"""The model a training run starts from: a saved masked LM, an encoder that gets an output layer, or nothing at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForMaskedLM

from maskropolis.errors import InputError, ModelError
from maskropolis.models import BUNDLED
from maskropolis.models.huggingface.loading import pickle_only
from maskropolis.models.huggingface.pretrained import config_from, network_from, own_refusal, tokenizer_from
from maskropolis.models.huggingface.quiet import quiet
from maskropolis.models.storybook import storybook_path

ATTENTION = "eager"  # faster than sdpa on short rows without a mask, forward and backward together


def located(name: str) -> str:
    """The folder of the package's own model for its name; any other name or folder as it is."""
    return str(storybook_path()) if name == BUNDLED and not Path(name).exists() else name


def load_tokenizer(name: str, trust: bool = False) -> Any:
    """The fast tokenizer of a saved model. Raises `ModelError`."""
    try:
        tokenizer = tokenizer_from(located(name), trust=trust)
    except Exception as error:
        raise own_refusal(name, error) or ModelError(f"no tokenizer for '{name}': {error}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(f"the tokenizer of '{name}' has no tokenizer.json; training needs a fast tokenizer")
    return tokenizer


def load_model(name: str, dropout: float = 0.0, seed: int = 0, trust: bool = False) -> Any:
    """The masked LM saved under `name`; an encoder without an output layer gets one, random parts drawn from `seed`.

    Raises `ModelError`.
    """
    torch.manual_seed(seed)
    name = located(name)
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        raise ModelError(f"'{name}' is a folder without config.json; expected a saved transformers model")
    if pickle_only(name):
        raise ModelError(
            f"'{name}' has weights only as pickle, which can run code when opened; convert them to safetensors first"
        )
    with quiet():
        try:
            config = _with_dropout(config_from(name, trust=trust), dropout)
            model, report = network_from(
                AutoModelForMaskedLM,
                name,
                trust=trust,
                config=config,
                dtype=torch.float32,
                attn_implementation=ATTENTION,
                use_safetensors=True,
                output_loading_info=True,
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise own_refusal(name, error) or ModelError(
                f"'{name}' is not an encoder to start from: {reason}"
            ) from None
    missing = set(report["missing_keys"])
    body = [key for key in missing if key.startswith(f"{model.base_model_prefix}.") and "pooler" not in key]
    if body:
        raise ModelError(
            f"'{name}' is not an encoder to start from: {len(body)} of its weights are missing, e.g. {min(body)}"
        )
    _plain_head(model, missing)
    return model


def _plain_head(model: nn.Module, missing: set[str]) -> None:
    """Square layers of a head that was not in the file become the identity: hidden states face the embeddings as
    they are, which is a better start than a random rotation."""
    for name, module in model.named_modules():
        square = isinstance(module, nn.Linear) and module.in_features == module.out_features
        if square and f"{name}.weight" in missing:
            nn.init.eye_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def _with_dropout(config: Any, rate: float) -> Any:
    """One rate for every dropout of the model."""
    for key in list(vars(config)):
        if key.endswith(("dropout", "_dropout_prob")) and isinstance(getattr(config, key), float):
            setattr(config, key, rate)
    return config


def keep_tokens(model: Any, old: np.ndarray) -> None:
    """Embeddings and output layer cut to the rows `old` [V] of the former vocabulary, in place."""
    rows = torch.as_tensor(old)
    embeddings = model.get_input_embeddings().weight.detach()
    if int(rows.max()) >= len(embeddings):
        raise InputError(f"the model embeds {len(embeddings)} tokens, fewer than its tokenizer has")
    output = model.get_output_embeddings()
    bias = None if output is None or output.bias is None else output.bias.detach()[rows].clone()
    kept = embeddings[rows].clone()
    weight = None if output is None else output.weight.detach()[rows].clone()
    model.resize_token_embeddings(len(rows), mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(kept)
        output = model.get_output_embeddings()
        if output is not None and weight is not None:
            output.weight.copy_(weight)
        if bias is not None:
            output.bias.copy_(bias)


def start_output_bias(model: Any, counts: np.ndarray) -> None:
    """The output bias as the log frequency of each token: what a model that has seen no context should say."""
    output = model.get_output_embeddings()
    if output is None or getattr(output, "bias", None) is None:
        return
    seen = counts.astype(np.float64) + 1
    with torch.no_grad():
        output.bias.copy_(torch.from_numpy(np.log(seen / seen.sum())).to(output.bias.dtype))
