"""From a finished run to the folder in the package: half the bytes, nothing twice, a tokenizer that spells prose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders
from transformers import AutoModelForMaskedLM, AutoTokenizer

from maskropolis.training.checkpoint import weights
from maskropolis.training.data.pruning import wrap

LARGEST = 32_000_000  # bytes of the folder

_ODD = r'[^"]*(?:"[^"]*"[^"]*)*"[^"]*$'  # an odd number of quotes to the end of the text: the one before opens
_EVEN = r'[^"]*(?:"[^"]*"[^"]*)*$'

PROSE = (
    (r" (?=[.,;:?!…)\]%])", ""),
    (r"(?<=[(\[$£]) ", ""),
    (r"(?<=\w) ' (?=(?:s|t|m|d|re|ve|ll)\b)", "'"),
    (r" ?— ?", "—"),
    (r"(?<=\w) - (?=\w)", "-"),
    (r"(?<=\ws) ' (?=\w)", "' "),
    (r"(?<=\d): (?=\d)", ":"),
    (r"(?<=\d), (?=\d{3}\b)", ","),
    (rf'(?<=") (?={_ODD})', ""),
    (rf' (?="{_EVEN})', ""),
)
"""White space that word-piece tokenisation puts in, and what stands there in print; encoding again gives the same
tokens."""


def with_prose_decoder(tokenizer: Any) -> Any:
    """The same tokenizer, whose decoded text has its marks where a printer would put them."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    replace = [decoders.Replace(Regex(pattern), content) for pattern, content in PROSE]
    backend.decoder = decoders.Sequence([decoders.WordPiece(cleanup=False), decoders.Fuse(), *replace])
    return wrap(json.loads(backend.to_str()), tokenizer)


def pack(source: Path, destination: Path) -> int:
    """Write `source` (a saved masked LM) to `destination` with float16 weights. Returns the bytes of the folder."""
    destination.mkdir(parents=True, exist_ok=True)
    model = AutoModelForMaskedLM.from_pretrained(source, dtype=torch.float32)
    halves = {name: tensor.to(torch.float16).contiguous() for name, tensor in weights(model).items()}
    if any(not torch.isfinite(tensor).all() for tensor in halves.values()):
        raise SystemExit("a weight does not fit float16")
    save_file(halves, destination / "model.safetensors", metadata={"format": "pt"})
    model.config.dtype = torch.float32  # the files are half precision; the model computes in single
    model.config.save_pretrained(destination)
    with_prose_decoder(AutoTokenizer.from_pretrained(source)).save_pretrained(destination)
    settings = destination / "tokenizer_config.json"
    named = json.loads(settings.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}  # a name that all know
    settings.write_text(json.dumps(named, indent=2, sort_keys=True) + "\n")
    size = sum(path.stat().st_size for path in destination.iterdir())
    if size > LARGEST:
        raise SystemExit(f"the folder has {size:,} bytes; at most {LARGEST:,} fit the package")
    return size
