"""A small text, a vocabulary learnt from it and options for runs of a second or two."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

EXCERPT = Path(__file__).parents[1] / "data" / "time_machine.txt"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def paragraphs() -> list[str]:
    return EXCERPT.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="session")
def tokenizer(paragraphs: list[str]) -> Any:
    from maskropolis.training.data.vocabulary import learn

    return learn(lambda: iter(paragraphs), "wordpiece", 400, lowercase=True, longest=512)


@pytest.fixture
def tiny(tokenizer: Any) -> Any:
    """A BERT of width 16, fresh for each test."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes)).eval()


@pytest.fixture
def saved(tiny: Any, tokenizer: Any, tmp_path: Path) -> Path:
    """The same, saved with its tokenizer."""
    folder = tmp_path / "saved"
    tiny.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def options(saved: Path) -> Callable[..., Any]:
    """Options of a run of twelve small steps from the saved model; keywords change them."""
    from maskropolis.training.masked.options import Options

    def make(**changes: Any) -> Options:
        small = {"length": 16, "rows": 4, "steps": 12, "warmup": 2, "validation_rows": 8, "precision": "fp32"}
        often = {"evaluate_every": 5, "checkpoint_every": 4, "hold_out": 0.2, "alone": 0.25}
        return Options(**{"texts": (str(EXCERPT),), "init": str(saved), **small, **often, **changes})

    return make
