"""Text to tokens and back: sentences, templates, fixed spans, blanks."""

from __future__ import annotations

import pytest
import tiny

from maskropolis import HuggingFaceMaskedLM
from maskropolis.errors import InputError
from maskropolis.models.text.codec import TextCodec


@pytest.fixture
def codec(tiny_bert: HuggingFaceMaskedLM) -> TextCodec:
    return tiny_bert.codec


def pieces(codec: TextCodec, tokens: list[int]) -> str:
    return " ".join(codec.pieces(tokens))


def test_encode_and_decode(codec: TextCodec) -> None:
    sequences = codec.encode(tiny.SENTENCES)
    assert pieces(codec, sequences.tokens[1].tolist()[:4]) == "[CLS] un ##happy [SEP]"
    assert sequences.free[1].tolist()[:4] == [False, True, True, False]
    assert codec.decode(sequences) == [
        "the cat sat on the mat.", "unhappy", "a cat, unsleeping, sat on a mat on a mat on the cat",
    ]  # fmt: skip


def test_templates_free_only_the_masks(codec: TextCodec) -> None:
    sequences = codec.template(["the [MASK] sat [MASK]", "[MASK]"])
    assert sequences.free.tolist() == [[False, False, True, False, True, False], [False, True, *[False] * 4]]
    with pytest.raises(InputError, match="template 1 has nothing free"):
        codec.template(["the cat"])


def test_fixed_spans(codec: TextCodec) -> None:
    sequences = codec.fixed_spans("the cat sat on the mat", ["cat sat", "mat"])
    assert sequences.free.tolist() == [[False, True, False, False, True, True, False, False]]
    with pytest.raises(InputError, match="does not occur"):
        codec.fixed_spans("the cat", ["dog"])
    with pytest.raises(InputError, match="nothing is free"):
        codec.fixed_spans("the cat", ["the cat"])


def test_blanks(codec: TextCodec) -> None:
    sequences = codec.blank([2, 1])
    assert sequences.tokens.tolist() == [[2, tiny.MASK, tiny.MASK, 3], [2, tiny.MASK, 3, 0]]
    with pytest.raises(InputError, match="length 0 is too small"):
        codec.blank([0])
    with pytest.raises(InputError, match=f"more than the model's limit of {tiny.POSITIONS}"):
        codec.blank([tiny.POSITIONS])
