"""A word-piece vocabulary cut down to what a text needs: fewer rows in the embeddings, a faster output layer.

Pieces that go are spelt with pieces that stay: word-piece tokenisation takes the longest piece it knows, and every
letter, digit and mark is kept, both at the start of a word and inside one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from maskropolis.errors import InputError

# Typographer's marks that keyboards lack, and what to read them as, so that both spellings are one text.
PLAIN_MARKS = {
    "“": '"', "”": '"', "″": '"', "’": "'", "‘": "'", "′": "'",
    "‑": "-", "‒": "-", "−": "-", "–": "—", "―": "—", "⸺": "—", "⸻": "—", "...": "…",
}  # fmt: skip


def with_plain_marks(tokenizer: Any) -> Any:
    """The same tokenizer, reading curly quotes as straight ones and rare dashes as common ones."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    replace = [
        {"type": "Replace", "pattern": {"String": mark}, "content": plain} for mark, plain in PLAIN_MARKS.items()
    ]
    old = [state["normalizer"]] if state["normalizer"] else []
    state["normalizer"] = {"type": "Sequence", "normalizers": [*replace, *old]}
    return wrap(state, tokenizer)


def prune(tokenizer: Any, lines: Iterable[str], size: int) -> tuple[Any, np.ndarray]:
    """(tokenizer with `size` pieces, old ids [size] of those kept), the pieces chosen by their count in `lines`.

    Raises `InputError` if the tokenizer is not word-piece, or `size` too small for the characters of the text.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if state["model"]["type"] != "WordPiece":
        raise InputError(f"only a WordPiece vocabulary can be pruned; this one is {state['model']['type']}")
    vocabulary: dict[str, int] = state["model"]["vocab"]
    counts = _counts(tokenizer, lines)
    kept = _always_kept(tokenizer, vocabulary, counts)
    if len(kept) > size:
        raise InputError(
            f"a vocabulary of {size} is too small: special tokens and single characters alone are {len(kept)}"
        )
    ranked = sorted((i for i in vocabulary.values() if counts[i] and i not in kept), key=lambda i: (-counts[i], i))
    old = np.array(sorted(kept | set(ranked[: size - len(kept)])))
    names = {i: piece for piece, i in vocabulary.items()}
    state["model"]["vocab"] = {names[i]: new for new, i in enumerate(old)}
    return wrap(_renumbered(state), tokenizer), old


def wrap(state: dict, like: Any) -> Any:
    """A transformers tokenizer around a `tokenizers` state, with the special tokens and limits of another."""
    state["truncation"] = state["padding"] = None
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)),
        model_max_length=like.model_max_length,
        **{name: token for name, token in like.special_tokens_map.items() if isinstance(token, str)},
    )


def _counts(tokenizer: Any, lines: Iterable[str]) -> Counter[int]:
    counts: Counter[int] = Counter()
    remaining = iter(lines)
    while block := list(islice(remaining, 2000)):
        for ids in tokenizer(block, add_special_tokens=False, return_attention_mask=False)["input_ids"]:
            counts.update(ids)
    return counts


def _always_kept(tokenizer: Any, vocabulary: dict[str, int], counts: Counter[int]) -> set[int]:
    """Special tokens, ASCII characters, and other single characters that the text holds."""
    single = {i for piece, i in vocabulary.items() if len(piece.removeprefix("##")) == 1}
    plain = {i for piece, i in vocabulary.items() if i in single and piece.isascii()}
    return set(tokenizer.all_special_ids) | plain | {i for i in single if counts[i]}


def _renumbered(state: dict) -> dict:
    """The ids of the special tokens, wherever else the state repeats them, set to the new ones."""
    vocabulary = state["model"]["vocab"]
    for token in state["added_tokens"]:
        token["id"] = vocabulary[token["content"]]
    processor = state.get("post_processor") or {}
    for name, token in (processor.get("special_tokens") or {}).items():
        token["ids"] = [vocabulary[name]]
    for part in ("cls", "sep"):
        if part in processor:
            processor[part][1] = vocabulary[processor[part][0]]
    return state
