"""Between text and the tokens of a translation model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from maskropolis.errors import InputError, ModelError
from maskropolis.models.text.codec import require_text, shorten


def require_fast(tokenizer: Any, name: str) -> None:
    """Raises `ModelError` for a tokenizer without offsets, by which unknown parts of a text are found."""
    if not tokenizer.is_fast:
        raise ModelError(f"the tokenizer in '{name}' is not a fast one; expected a tokenizer.json")


def listed(parts: Sequence[str]) -> str:
    """Parts of a text for a message, at most five of them."""
    return ", ".join(repr(part) for part in parts[:5]) + (", …" if len(parts) > 5 else "")


class TranslationCodec:
    """Wraps the tokenizer of a translation model; its post-processor puts the end token behind a source."""

    def __init__(self, tokenizer: Any, longest_source: int, longest_target: int, continuation: str = "") -> None:
        self.tokenizer = tokenizer
        self.longest_source, self.longest_target = longest_source, longest_target
        self._continuation = continuation

    @cached_property
    def special(self) -> frozenset[int]:
        return frozenset(self.tokenizer.all_special_ids)

    def source_ids(self, text: str, where: str) -> list[int]:
        """Tokens of a source, end token included. Raises `InputError` if it is empty or too long."""
        require_text(text, where)
        return self._fitting(self.tokenizer(text, verbose=False)["input_ids"], self.longest_source, where, text)

    def target_ids(self, text: str, where: str) -> list[int]:
        """Tokens of a target without special ones around it. Raises `InputError` if it is empty or too long."""
        require_text(text, where)
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return self._fitting(ids, self.longest_target, where, text)

    def _fitting(self, ids: list[int], most: int, where: str, text: str) -> list[int]:
        if len(ids) > most:
            raise InputError(
                f"{where} has {len(ids)} tokens, more than the model's limit of {most}; "
                f"shorten or split it: {shorten(text)!r}"
            )
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Tokens as text, special ones left out, sub-words joined."""
        shown: str = self.tokenizer.decode(
            [i for i in ids if i not in self.special or i == self.tokenizer.unk_token_id],
            clean_up_tokenization_spaces=False,
        )
        if self._continuation:
            mark = self._continuation
            shown = shown.replace(f"{mark} ", "").removesuffix(mark)
        return shown.strip()

    def unknown(self, text: str) -> list[str]:
        """The parts of a text that become the unknown token, each once."""
        encoded = self.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        parts = [text[start:stop] for token, (start, stop) in pairs if token == self.tokenizer.unk_token_id]
        return list(dict.fromkeys(parts))

    def allowed(self, size: int) -> Tensor:
        """[V] bool: tokens that a sampler may write."""
        allowed = torch.zeros(size, dtype=torch.bool)
        for piece, index in self.tokenizer.get_vocab().items():
            if index < size and index not in self.special and not piece.startswith("madeupword"):
                allowed[index] = True
        return allowed
