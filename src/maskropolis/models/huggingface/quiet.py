"""Silence while transformers loads a model: our own checks say what matters."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import transformers


@contextmanager
def quiet() -> Iterator[None]:
    """No notices and no progress bars from transformers and the hub's client within the context."""
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    before, bars = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)
        if bars:
            transformers.logging.enable_progress_bar()
