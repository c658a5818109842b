"""Between text and tokens: encoding sentences and templates, and showing tokens as text again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from maskropolis.errors import InputError, ModelError
from maskropolis.sequences import Sequences

LITERAL_MASK = "[MASK]"
_GAP = re.compile(r"\[MASK:[^\]]*\]")
_MASKS = ("<mask>", "<MASK>")  # of other models; the literal mask is understood for every model
_UNUSED = re.compile(r"\[unused\d+\]|<unused\d*>|madeupword\d+|<extra_id_\d+>", re.IGNORECASE)


class TextCodec:
    """Wraps a transformers tokenizer: `encode` and `template` give `Sequences`, `decode` gives text.

    `format` names it, `joint` is what stands between two tokens that do not belong together; see `models.alphabets` for
    formats other than text. Raises `ModelError` if the tokenizer has no mask token.
    """

    format: str = "text"
    joint: str = " "

    def __init__(self, tokenizer: Any, max_length: int | None = None) -> None:
        if tokenizer.mask_token_id is None:
            raise ModelError(
                f"the tokenizer of '{tokenizer.name_or_path}' has no mask token; "
                "expected a masked language model such as BERT, RoBERTa or ESM"
            )
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.mask_token: int = tokenizer.mask_token_id
        self.padding: int = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.mask_token

    @cached_property
    def special(self) -> frozenset[int]:
        """Ids of special tokens; the unknown token is among them."""
        return frozenset(self.tokenizer.all_special_ids)

    @cached_property
    def unknown(self) -> int | None:
        return self.tokenizer.unk_token_id

    @cached_property
    def frame(self) -> tuple[list[int], list[int]]:
        """The special tokens that the tokenizer puts before and after a sentence, e.g. ([CLS], [SEP])."""
        plain = self.tokenizer(self.tokenizer.mask_token, add_special_tokens=False)["input_ids"]
        full = self.tokenizer(self.tokenizer.mask_token)["input_ids"]
        start = full.index(self.mask_token)
        end = start + (len(plain) - plain.index(self.mask_token))
        return full[: start - plain.index(self.mask_token)], full[end:]

    def allowed(self, vocabulary_size: int) -> Tensor:
        """[V] bool: real tokens that a sampler may write; no special, unused or unnamed ids."""
        allowed = torch.zeros(vocabulary_size, dtype=torch.bool)
        for token, index in self.tokenizer.get_vocab().items():
            if index < vocabulary_size and index not in self.special and not _UNUSED.fullmatch(token):
                allowed[index] = True
        return allowed

    def ids(self, text: str, where: str = "text") -> list[int]:
        """Token ids of one sentence, special tokens included. Raises `InputError` if empty or too long."""
        require_text(text, where)
        ids: list[int] = self.tokenizer(text, verbose=False)["input_ids"]
        self.require_fits(len(ids), where, text)
        if len(ids) == sum(map(len, self.frame)):
            raise InputError(f"{where} has no tokens after tokenisation: {shorten(text)!r}")
        return ids

    def require_fits(self, length: int, where: str, text: str = "") -> None:
        if self.max_length is not None and length > self.max_length:
            shown = f": {shorten(text)!r}" if text else ""
            raise InputError(
                f"{where} has {length} tokens, more than the model's limit of {self.max_length}; "
                f"shorten or split it{shown}"
            )

    def encode(self, texts: Sequence[str], first_line: int = 1) -> Sequences:
        """Sentences with every token free but the special ones (an unknown token in the text counts as free)."""
        rows = [self.ids(text, f"sentence {first_line + i}") for i, text in enumerate(texts)]
        hidden = self.special - ({self.unknown} if self.unknown is not None else set())
        return self.pad(rows, [[token not in hidden for token in row] for row in rows])

    def template(self, texts: Sequence[str]) -> Sequences:
        """Texts with mask tokens, the model's own or the literal `[MASK]`; only the masks are free.

        Letters right behind a mask continue its word: `[MASK]ing` ends in `##ing`, if the vocabulary has such entries.
        """
        rows = []
        for index, text in enumerate(texts):
            gap = _GAP.search(text)
            if gap is not None:
                raise InputError(f"{gap[0]} is for `maskropolis fill`; expected {LITERAL_MASK} in a template")
            require_own_masks(text, self.tokenizer.mask_token, f"template {index + 1}")
            text = text.replace(LITERAL_MASK, self.tokenizer.mask_token)
            row = self._continued(self.ids(text, f"template {index + 1}"), text)
            if self.mask_token not in row:
                raise InputError(
                    f"template {index + 1} has nothing free: expected at least one {LITERAL_MASK} in {shorten(text)!r}"
                )
            rows.append(row)
        return self.pad(rows, [[token == self.mask_token for token in row] for row in rows])

    def _continued(self, row: list[int], text: str) -> list[int]:
        """`row` with the piece behind a mask marked as the continuation of a word where `text` has no space between."""
        parts = text.split(self.tokenizer.mask_token)[1:]
        masks = [position for position, token in enumerate(row) if token == self.mask_token]
        row = list(row)
        for position, behind in zip(masks, parts, strict=False):
            if self.format == "text" and behind[:1].isalnum():
                piece = self.pieces([row[position + 1]])[0]
                row[position + 1] = self.entries.get(f"##{piece}", row[position + 1])
        return row

    def fixed_spans(self, text: str, spans: Sequence[str]) -> Sequences:
        """One sentence in which the tokens of every occurrence of `spans` are fixed and all others free."""
        row = self.ids(text)
        held: list[tuple[int, int]] = []
        for span in spans:
            found = [m.span() for m in re.finditer(re.escape(span), text)] if span else []
            if not found:
                raise InputError(f"the fixed span {span!r} does not occur in {shorten(text)!r}")
            held += found
        free = [
            token not in self.special and not any(start < stop_ and begin < stop for begin, stop_ in held)
            for token, (start, stop) in zip(row, self.offsets(text), strict=True)
        ]
        if not any(free):
            raise InputError("nothing is free: the fixed spans cover the whole text")
        return self.pad([row], [free])

    def blank(self, lengths: Sequence[int]) -> Sequences:
        """Chains of `lengths` free mask tokens between the model's special tokens."""
        before, after = self.frame
        for length in lengths:
            if length < 1:
                raise InputError(f"length {length} is too small; expected at least 1 token")
            self.require_fits(length + len(before) + len(after), f"length {length} with special tokens")
        rows = [before + [self.mask_token] * length + after for length in lengths]
        free = [[False] * len(before) + [True] * length + [False] * len(after) for length in lengths]
        return self.pad(rows, free)

    def pad(self, rows: list[list[int]], free: list[list[bool]]) -> Sequences:
        return Sequences.from_lists(rows, free, self.padding)

    @property
    def has_offsets(self) -> bool:
        """Whether the tokenizer says which characters and words its tokens stand for."""
        return bool(getattr(self.tokenizer, "is_fast", False))

    @property
    def has_words(self) -> bool:
        """Whether the tokenizer says which tokens form a word."""
        return self.has_offsets

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The characters, from and to, that each token stands for; needs `has_offsets`."""
        return list(self.tokenizer(text, return_offsets_mapping=True, verbose=False)["offset_mapping"])

    def words(self, text: str) -> list[int | None]:
        """The index of the word that each token belongs to, None at special tokens; needs `has_words`."""
        return list(self.tokenizer(text, verbose=False).word_ids())

    def spelling(self, word: str) -> tuple[int, ...]:
        """The tokens of a word inside a text; none if it cannot be written."""
        return tuple(self.tokenizer(f" {word}", add_special_tokens=False)["input_ids"])

    def decode(self, sequences: Sequences) -> list[str]:
        """The text of each row, without special tokens (mask tokens stay visible)."""
        keep_out = self.special - {self.mask_token} - ({self.unknown} if self.unknown is not None else set())
        texts = []
        for row, length in zip(sequences.tokens.tolist(), sequences.lengths.tolist(), strict=True):
            ids = [token for token in row[:length] if token not in keep_out]
            texts.append(self.tokenizer.decode(ids, skip_special_tokens=False).strip())
        return texts

    @cached_property
    def entries(self) -> dict[str, int]:
        """The vocabulary."""
        return dict(self.tokenizer.get_vocab())

    def entry(self, symbol: str) -> int | None:
        """The id of an entry of the vocabulary; None if it is none, or the unknown token."""
        found = self.entries.get(symbol)
        return None if found == self.unknown else found

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary entries of `ids`, e.g. `##ing`."""
        return [str(piece) for piece in self.tokenizer.convert_ids_to_tokens(list(ids))]


def require_text(text: str, where: str) -> None:
    """Raise `InputError` unless `text` is a string with something in it that can be written as UTF-8."""
    if not isinstance(text, str):
        raise InputError(f"{where} is of type {type(text).__name__}; expected text")
    if not text.strip():
        raise InputError(f"{where} is empty; expected at least one token")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where} has a broken character (half a surrogate pair) at place {error.start + 1}") from None


def listed_texts(given: str | Iterable[str], what: str) -> list[str]:
    """One text, or several, as a list. Raises `InputError` for what is neither."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InputError(f"{what} is of type {type(given).__name__}; expected a text or a list of texts")
    return list(given)


def unknown_tokens(count: int, where: str = "") -> str:
    """The warning that so many tokens, in all or those that `where` names, are the unknown token."""
    return f"{count} of the tokens{where} are unknown to the model's vocabulary"


def require_own_masks(text: str, mask: str, where: str) -> None:
    """Raise `InputError` if `text` marks a gap as other models do; `mask` is the mask token of this one."""
    rest = text.replace(mask, "")
    for foreign in _MASKS:
        if foreign in rest:
            own = LITERAL_MASK if mask == LITERAL_MASK else f"{LITERAL_MASK} or {mask}"
            raise InputError(f"{where} holds {foreign}, which marks no gap for this model; write {own}")


def shorten(text: str, most: int = 60) -> str:
    """`text`, cut for a message."""
    return text if len(text) <= most else text[: most - 1] + "…"
