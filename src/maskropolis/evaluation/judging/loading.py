"""Finding and loading a judge: a folder or hub name of a causal language model, or one GGUF file."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from maskropolis.errors import ModelError, unknown_name
from maskropolis.models.huggingface.loading import DTYPES, Options, find_device, load
from maskropolis.models.huggingface.pretrained import network_from, own_refusal, tokenizer_from
from maskropolis.models.huggingface.quiet import quiet

GGUF = ".gguf"


def load_causal(name: str, options: Options) -> tuple[Any, Any]:
    """(model in evaluation mode on its device, tokenizer). Raises `ModelError`, also for a model that looks ahead."""
    if Path(name).suffix.lower() == GGUF:
        model, tokenizer = _load_gguf(Path(name), options)
    else:
        model, tokenizer, _ = load(name, options, AutoModelForCausalLM)
    require_causal(model, name)
    return model, tokenizer


def _load_gguf(file: Path, options: Options) -> tuple[Any, Any]:
    """The weights of a GGUF file, dequantised to `options.dtype`, and the tokenizer inside it."""
    if options.dtype not in DTYPES:
        raise unknown_name("dtype", options.dtype, DTYPES)
    if not file.is_file():
        raise ModelError(f"the GGUF file '{file}' does not exist; expected a file ending in {GGUF}")
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f"reading '{file}' needs the package gguf: pip install 'maskropolis[gguf]'")
    device = find_device(options.device)
    folder, trust = str(file.resolve().parent), options.trust_remote_code
    try:
        with quiet(), contextlib.redirect_stderr(io.StringIO()):
            if options.tokenizer:
                tokenizer = tokenizer_from(options.tokenizer, trust=trust)
            else:
                tokenizer = tokenizer_from(folder, trust=trust, gguf_file=file.name)
            kind = AutoModelForCausalLM
            model = network_from(kind, folder, trust=trust, gguf_file=file.name, dtype=DTYPES[options.dtype])
    except Exception as error:
        refused = own_refusal(str(file), error)
        if refused is not None:
            raise refused from None
        text = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"cannot load '{file}' as a causal language model: {text}") from None
    return model.to(device).eval(), tokenizer


@torch.inference_mode()
def require_causal(model: Any, name: str) -> None:
    """Raises `ModelError` if the last token changes the logits of an earlier position, as it does in a BERT."""
    size, device = int(model.config.vocab_size), next(model.parameters()).device
    ids = torch.linspace(0, size - 1, 6, device=device).long()[None]
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % size
    first, second = (model(input_ids=row, use_cache=False).logits[:, :-1] for row in (ids, other))
    if bool((first - second).abs().max() > 1e-3 * first.abs().max()):
        raise ModelError(
            f"'{name}' sees the tokens to the right of a position, so it gives no probabilities of texts; "
            "expected a causal language model such as GPT-2"
        )
