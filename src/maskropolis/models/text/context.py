"""Texts with visible context: which tokens of prefix + text + suffix are to be scored, and to which word each belongs.

The three parts are joined and tokenised as one string, so that the model sees what it would see in running text; no
separator token comes between them. A token is scored if any of its characters belong to the text: one that straddles
the border counts as the text's. White space at a border counts with what follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskropolis.errors import InputError, ModelError
from maskropolis.models.text.codec import TextCodec, require_text, shorten


@dataclass(frozen=True)
class Encoded:
    """One text as tokens, of T in all.

    Attributes:
        ids: [T] token ids, special tokens included.
        scored: [T] whether a token is part of the text to be scored.
        words: [T] the index of the word that each token belongs to, None at special tokens; None if not asked for.
    """

    ids: list[int]
    scored: list[bool]
    words: list[int | None] | None = None


def encode_in_context(
    codec: TextCodec,
    text: str,
    prefix: str = "",
    suffix: str = "",
    *,
    joint: str = " ",
    words: bool = False,
    where: str = "text",
) -> Encoded:
    """Tokens of prefix + text + suffix; `joint` is put between two parts where neither has white space at the border.

    Special tokens are never scored; an unknown token is. Raises `InputError` if the text is empty, has no tokens of its
    own, holds a mask token or is, with its context, too long; `ModelError` if the tokenizer cannot say what was asked.
    """
    require_text(text, where)
    prefix, suffix = _with_joint(prefix, text, joint), _with_joint(text, suffix, joint, after=True)
    whole = prefix + text + suffix
    ids = codec.ids(whole, where)
    begin, end = len(prefix.rstrip()), len(prefix) + len(text)
    inside = [True] * len(ids) if not prefix and not suffix else _inside(codec, whole, begin, end, ids, where)
    hidden = codec.special - {codec.unknown}
    scored = [within and token not in hidden for within, token in zip(inside, ids, strict=True)]
    if any(within and token == codec.mask_token for within, token in zip(inside, ids, strict=True)):
        raise InputError(f"{where} holds a mask token; expected a complete text: {shorten(text)!r}")
    if not any(scored):
        raise InputError(f"{where} has no tokens of its own after tokenisation: {shorten(text)!r}")
    return Encoded(ids, scored, _words(codec, whole) if words else None)


def _with_joint(left: str, right: str, joint: str, after: bool = False) -> str:
    """The context part (`left`, or `right` if `after`) extended by the joint where the border lacks white space."""
    part = right if after else left
    if not part or left[-1:].isspace() or right[:1].isspace():
        return part
    return joint + part if after else part + joint


def _inside(codec: TextCodec, whole: str, begin: int, end: int, ids: list[int], where: str) -> list[bool]:
    """Whether each token has characters in [begin, end) of the joined string."""
    if not codec.has_offsets:
        return _inside_by_parts(codec, whole, begin, end, ids, where)
    return [start < end and (stop > begin or start == stop >= begin) for start, stop in codec.offsets(whole)]


def _inside_by_parts(codec: TextCodec, whole: str, begin: int, end: int, ids: list[int], where: str) -> list[bool]:
    """For tokenizers that give no offsets: possible if tokenising the parts one by one gives the same tokens."""
    parts = whole[:begin], whole[begin:end], whole[end:]
    tokens = [codec.tokenizer(part, add_special_tokens=False)["input_ids"] for part in parts]
    before, after = codec.frame
    if [*before, *tokens[0], *tokens[1], *tokens[2], *after] != ids:
        raise ModelError(
            f"the tokenizer of this model does not say which tokens belong to the text of {where}: a token straddles "
            "the border to its context; move the border, or use a model with a fast tokenizer"
        )
    first = len(before) + len(tokens[0])
    return [first <= index < first + len(tokens[1]) for index in range(len(ids))]


def _words(codec: TextCodec, whole: str) -> list[int | None]:
    if not codec.has_offsets:
        raise ModelError(
            "the tokenizer of this model does not say which tokens form a word, which within-word scores need; "
            "choose other metrics"
        )
    return codec.words(whole)
