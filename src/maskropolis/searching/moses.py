"""Undoes what the Moses tokeniser did: its escapes (`&apos;`, `@-@`) and the spaces around punctuation."""

from __future__ import annotations

import re

_ESCAPES = {
    "&apos;": "'", "&quot;": '"', "&lt;": "<", "&gt;": ">", "&#124;": "|", "&#91;": "[", "&#93;": "]", "&bar;": "|",
}  # fmt: skip
_ESCAPED = re.compile("|".join(map(re.escape, _ESCAPES)))
_HYPHEN = re.compile(r" ?@([-–/])@ ?")
_NO_SPACE_BEFORE = re.compile(r" ([.,!?:;%)\]}»…]+)(?= |$)")
_NO_SPACE_AFTER = re.compile(r"(^| )([(\[{«¿¡#$£€]+) ")
_ENDING = re.compile(r"(?<=\w) ('(?:s|m|d|t|re|ve|ll)\b)")
_NEGATION = re.compile(r"(?<=\w) (n't\b)")
_ELISION = re.compile(r"(?:(?<=^)|(?<= ))(\w{1,8}') (?=\w)")
_QUOTED = re.compile(r'"\s*([^"]*?)\s*"')
_SINGLE_QUOTED = re.compile(r"(?:(?<=^)|(?<= ))' ([^']*?) '(?= |$|[.,!?])")


def unescape(text: str) -> str:
    """Moses escapes as the characters that they stand for; nothing else changes. `&amp;` comes last."""
    text = _HYPHEN.sub(r"\1", text)
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text).replace("&amp;", "&")


def detokenise(text: str) -> str:
    """Running text: escapes undone, punctuation joined to the words it belongs to, quotation marks paired.

    For languages written with spaces; German, English and French contractions and elisions are known.
    """
    text = unescape(" ".join(text.split()))
    text = _NO_SPACE_AFTER.sub(r"\1\2", text)
    text = _QUOTED.sub(r'"\1"', text)
    text = _ELISION.sub(r"\1", text)
    text = _ENDING.sub(r"\1", text)
    text = _NEGATION.sub(r"\1", text)
    text = _SINGLE_QUOTED.sub(r"'\1'", text)
    return _NO_SPACE_BEFORE.sub(r"\1", text)
