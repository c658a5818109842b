"""Masked language models as the probability distributions they implicitly are."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "HuggingFaceMaskedLM": "maskropolis.models.huggingface",
    "Sequences": "maskropolis.sequences",
    "generate": "maskropolis.generation",
    "load": "maskropolis.models",
    "open_run": "maskropolis.chains.run_folder",
    "resume": "maskropolis.sampling",
    "sample": "maskropolis.sampling",
    "score": "maskropolis.scoring",
}
"""Public name -> module that defines it; imported on first use so that `import maskropolis` stays light."""

__all__ = [
    "HuggingFaceMaskedLM",
    "Sequences",
    "__version__",
    "generate",
    "load",
    "open_run",
    "resume",
    "sample",
    "score",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'maskropolis' has no attribute '{name}'")
