"""Shared fixtures. Tests never reach for the network, and use one thread."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch

torch.set_num_threads(1)
# A process started in the background may have been told to ignore Ctrl-C; the tests of it need the usual handler.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_bert() -> Any:
    """A two-layer BERT with random weights and 69 word pieces."""
    import tiny

    from maskropolis import HuggingFaceMaskedLM

    return HuggingFaceMaskedLM(tiny.network("bert"), tiny.tokenizer(), name="tiny-bert")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny_bert` saved as a user would have it: safetensors, configuration, tokenizer."""
    import tiny

    folder = tmp_path_factory.mktemp("tiny-bert")
    tiny.network("bert").save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def rxnmapper_folder() -> Path:
    """The ALBERT inside the package rxnmapper, which `make test` installs; its absence is a failure, not a skip."""
    found = importlib.util.find_spec("rxnmapper")
    if found is None or not found.submodule_search_locations:
        pytest.fail("rxnmapper==0.4.3 is not installed; run `make test`, or pip install --no-deps rxnmapper==0.4.3")
    return Path(found.submodule_search_locations[0]) / "models/transformers/albert_heads_8_uspto_all_1310k"
