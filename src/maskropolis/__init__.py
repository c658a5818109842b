"""Masked language models as the probability distributions they implicitly are."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "HuggingFaceMaskedLM": "maskropolis.models.huggingface.masked_lm",
    "Sequences": "maskropolis.sequences",
    "entropy": "maskropolis.mutation",
    "fill": "maskropolis.infilling",
    "generate": "maskropolis.generation",
    "load": "maskropolis.models",
    "mutate": "maskropolis.mutation",
    "open_run": "maskropolis.runs.folder",
    "resume": "maskropolis.sampling",
    "sample": "maskropolis.sampling",
    "sample_lines": "maskropolis.sampling",
    "score": "maskropolis.scoring",
}
"""Public name -> module that defines it; imported on first use so that `import maskropolis` stays light."""

__all__ = [
    "HuggingFaceMaskedLM",
    "Sequences",
    "__version__",
    "entropy",
    "fill",
    "generate",
    "load",
    "mutate",
    "open_run",
    "resume",
    "sample",
    "sample_lines",
    "score",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'maskropolis' has no attribute '{name}'")
