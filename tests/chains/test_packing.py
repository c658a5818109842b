"""States of any shape survive packing bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from maskropolis.chains.packing import pack, settled, unpack
from maskropolis.errors import RunError
from maskropolis.kernels import KERNELS
from maskropolis.kernels.base import State
from maskropolis.kernels.specification import build_kernel
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_kernel(tiny_bert: Any, name: str) -> None:
    kernel = build_kernel(name, NORM)
    state = kernel.init(tiny_bert, tiny_bert.codec.encode(["the cat sat", "unhappy"]))
    tree, tensors = pack(state)
    again, more = pack(unpack(tree, tensors))
    assert again == tree and tensors.keys() == more.keys()
    for key, tensor in tensors.items():
        assert torch.equal(tensor, more[key]) or bool(tensor.isnan().any())
        assert tensor.dtype == more[key].dtype


def test_only_our_dataclasses_are_built() -> None:
    for kind in ("subprocess:Popen", "maskropolis.cli:main", "maskropolis.errors:RunError"):
        with pytest.raises(RunError, match="unknown to this version"):
            unpack({"kind": kind, "fields": {}}, {})


def test_what_cannot_be_saved_is_named() -> None:
    sequences = Sequences.from_lists([[1]], [[True]])
    with pytest.raises(TypeError, match=r"state\.memory\.odd"):
        pack(State(sequences, memory={"odd": object()}))  # type: ignore[dict-item]


def test_settled_is_contiguous() -> None:
    sequences = Sequences.from_lists([[1, 2], [3, 4]], [[True, True]] * 2)
    state = State(sequences, memory={"a": torch.arange(6.0).view(2, 3).T})
    assert not state.memory["a"].is_contiguous()
    after = settled(state)
    assert after.memory["a"].is_contiguous() and torch.equal(after.memory["a"], state.memory["a"])
    assert settled(after) is after
