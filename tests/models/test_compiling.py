"""`compile`: the compiled body is the one that runs, and whatever goes wrong is said in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from maskropolis import load, score
from maskropolis.errors import ModelError
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM

TEXTS = ["a b c", "d e f g h"]


def test_what_torch_compiles_is_what_runs(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def pretend(body: Any, dynamic: bool) -> Any:
        assert dynamic
        return lambda **given: calls.append(1) or body(**given)

    monkeypatch.setattr(torch, "compile", pretend)
    plain, made = load(str(tiny_folder)), load(str(tiny_folder), compile=True)
    before = len(calls)
    assert [one.pll for one in score(TEXTS, made)] == pytest.approx([one.pll for one in score(TEXTS, plain)], abs=1e-4)
    assert len(calls) > before
    assert made.loaded_with["compile"]


@pytest.mark.parametrize("trouble", [RuntimeError("no C++ compiler found\nand more"), ImportError("triton")])
def test_a_failure_is_one_line(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception) -> None:
    def broken(body: Any, dynamic: bool) -> Any:
        def call(**given: Any) -> None:
            raise trouble

        return call

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(
        ModelError, match=r"could not be compiled \((no C\+\+ compiler found|triton)\); leave out --comp"
    ):
        HuggingFaceMaskedLM.from_pretrained(str(tiny_folder), compile=True)


def test_other_logits_are_noticed(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda body, dynamic: lambda **given: [body(**given)[0] + 1])
    with pytest.raises(ModelError, match="gives other logits when compiled"):
        HuggingFaceMaskedLM.from_pretrained(str(tiny_folder), compile=True)


@pytest.mark.slow
def test_compiled_for_real(tiny_folder: Path) -> None:
    plain, made = load(str(tiny_folder)), load(str(tiny_folder), compile=True)
    assert [one.pll for one in score(TEXTS, made)] == pytest.approx([one.pll for one in score(TEXTS, plain)], abs=1e-4)
