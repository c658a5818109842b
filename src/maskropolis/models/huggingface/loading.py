"""Finding and loading a transformers masked LM safely, with one clear line for everything that can go wrong."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM

from maskropolis.errors import ModelError, unknown_name
from maskropolis.models.huggingface.pretrained import config_from, network_from, own_refusal, tokenizer_from
from maskropolis.models.huggingface.quiet import quiet
from maskropolis.models.text.smiles import smiles_tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin")
_SAFE = ("model.safetensors", "model.safetensors.index.json")


@dataclass(frozen=True)
class Options:
    """How to load. `tokenizer`: a name or folder, or `smiles` for the SMILES splitting over the model's vocab.txt; that
    is what the `format` smiles takes by itself where the model comes without a tokenizer."""

    tokenizer: str | None = None
    device: str = "auto"
    dtype: str = "float32"
    allow_pickle: bool = False
    trust_remote_code: bool = False
    revision: str | None = None
    format: str = "text"
    compile: bool = False


def load(name: str, options: Options, family: Any = AutoModelForMaskedLM) -> tuple[Any, Any, torch.device]:
    """(model in evaluation mode, tokenizer, device); `family` is the transformers class that makes the model.

    Raises `ModelError`.
    """
    if options.dtype not in DTYPES:
        raise unknown_name("dtype", options.dtype, DTYPES)
    device = find_device(options.device)
    with quiet(), contextlib.redirect_stderr(io.StringIO()):
        config = _config(name, options)
        tokenizer = _tokenizer(name, options)
        model = _model(name, config, options, family)
    _require_match(name, tokenizer, model)
    return model.to(device).eval(), tokenizer, device


def find_device(name: str) -> torch.device:
    """The torch device called `name`; `auto` is CUDA if there is one, else the CPU. Raises `ModelError`."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        there = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise ModelError(f"the device '{name}' is not there; available: {', '.join(there)}") from None
    return device


def _config(name: str, options: Options) -> Any:
    folder = Path(name)
    if not name or folder.is_file():
        raise ModelError(f"'{name}' is no model; expected the folder of a saved transformers model, or a hub name")
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(f"'{name}' is a folder without config.json; expected a saved transformers model")
    try:
        return config_from(name, trust=options.trust_remote_code, revision=options.revision)
    except Exception as error:
        raise _translated(name, error) from None


def _tokenizer(name: str, options: Options) -> Any:
    bare = options.tokenizer is None and Path(name).is_dir() and not _has_tokenizer(Path(name))
    if options.tokenizer == "smiles" or (bare and options.format == "smiles"):
        vocabulary = Path(name) / "vocab.txt"
        if not vocabulary.is_file():
            raise ModelError(f"--tokenizer smiles needs '{vocabulary}', one token a line; it is not there")
        return smiles_tokenizer(vocabulary)
    where = options.tokenizer or name
    if bare:
        hint = ", or --tokenizer smiles for chemistry" if (Path(name) / "vocab.txt").is_file() else ""
        raise ModelError(f"the folder '{name}' has no complete tokenizer; name one with --tokenizer DIR_OR_NAME{hint}")
    try:
        return tokenizer_from(where, trust=options.trust_remote_code, revision=options.revision)
    except Exception as error:
        if Path(where).is_dir() and not _has_tokenizer(Path(where)):
            what = "expected tokenizer.json or the like"
            raise ModelError(f"the folder '{where}' has no complete tokenizer; {what}") from None
        translated = _translated(where, error)
        raise ModelError(f"no tokenizer for '{name}': {translated}") from None


def _has_tokenizer(folder: Path) -> bool:
    """A fast tokenizer file, a sentencepiece model, or a vocabulary with a configuration that names its class."""
    if any(
        (folder / name).is_file() for name in ("tokenizer.json", "spiece.model", "sentencepiece.bpe.model", "spm.model")
    ):
        return True
    config = folder / "tokenizer_config.json"
    named = config.is_file() and "tokenizer_class" in config.read_text(encoding="utf-8")
    return any((folder / name).is_file() for name in ("vocab.txt", "vocab.json")) and named


def _model(name: str, config: Any, options: Options, family: Any) -> Any:
    pickled = pickle_only(name)
    if pickled and not options.allow_pickle:
        raise ModelError(
            f"'{name}' has weights only as pickle, which can run code when opened; "
            "pass --allow-pickle to load them (tensors only), or convert them to safetensors"
        )
    try:
        model, report = network_from(
            family,
            name,
            config=config,
            dtype=DTYPES[options.dtype],
            use_safetensors=not pickled,
            trust=options.trust_remote_code,
            revision=options.revision,
            output_loading_info=True,
        )
    except Exception as error:
        raise _translated(name, error, family) from None
    missing = sorted(key for key in report["missing_keys"] if not key.endswith("position_ids"))
    if missing:
        kind, hint = _KINDS.get(family.__name__, ("model", ""))[0], ""
        if family is AutoModelForMaskedLM:
            hint = "; train an output layer with `maskropolis train mlm --init`"
        raise ModelError(
            f"'{name}' is not a complete {kind}: {len(missing)} weights are missing, e.g. {missing[0]}{hint}"
        )
    return model


_KINDS = {
    "AutoModelForMaskedLM": ("masked language model", "BERT, RoBERTa, ESM or the like"),
    "AutoModelForCausalLM": ("causal language model", "GPT-2, Llama or the like"),
}
"""What a transformers class loads, in words, and examples."""


def _require_match(name: str, tokenizer: Any, model: Any) -> None:
    """A tokenizer whose ids reach beyond the model's vocabulary belongs to another model."""
    highest, size = max(tokenizer.get_vocab().values(), default=-1), int(model.config.vocab_size)
    if highest >= size:
        raise ModelError(
            f"the tokenizer does not belong to '{name}': its token ids go up to {highest}, the model has {size} tokens"
        )


def pickle_only(name: str) -> bool:
    """Whether the folder `name` has weights as pickle and none as safetensors."""
    folder = Path(name)
    if not folder.is_dir():
        return False
    has_safe = any((folder / f).is_file() for f in _SAFE)
    return not has_safe and any((folder / f).is_file() for f in _PICKLES)


def _translated(name: str, error: Exception, family: Any = AutoModelForMaskedLM) -> ModelError:
    """One line for the many exceptions that transformers raises while loading."""
    refused = own_refusal(name, error)
    if refused is not None:
        return refused
    text = " ".join(str(error).split())
    low = text.lower()
    if "weights only load failed" in low:
        return ModelError(
            f"'{name}' has a pickle that holds more than tensors, or is damaged; it was not opened: "
            "get the weights as safetensors"
        )
    if "unrecognized configuration class" in low:
        found = re.search(r"(\w+Config)\b", text)
        kind = found.group(1) if found else "of another kind"
        wanted, like = _KINDS.get(family.__name__, ("model of the kind asked for", f"one for {family.__name__}"))
        masked = family is AutoModelForMaskedLM
        hint = f"; causal:{name} reads a causal architecture that fills masks (LLaDA, Dream)" if masked else ""
        return ModelError(f"'{name}' is not a {wanted} ({kind}); expected {like}{hint}")
    if "no file named" in low or "does not appear to have a file named" in low:
        if "safetensors" in low:
            return ModelError(
                f"'{name}' has no weights as safetensors; pass --allow-pickle if it has a pickle you trust"
            )
        return ModelError(f"'{name}' is incomplete: {text[:200]}")
    if isinstance(error, OSError | ValueError) and not Path(name).exists():
        return ModelError(f"no model '{name}': it is neither a folder nor a name that the hub or its local cache knows")
    return ModelError(f"cannot load '{name}': {text[:300] or type(error).__name__}")
