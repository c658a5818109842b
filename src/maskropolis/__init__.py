"""Masked language models as the probability distributions they implicitly are."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {}
"""Public name -> module that defines it; imported on first use so that `import maskropolis` stays light."""

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'maskropolis' has no attribute '{name}'")
