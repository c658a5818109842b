"""Figures that documents quote: each stands before a comment that names its place in a committed result file.

    perplexity 27.41<!-- experiments/storybook/results.json#/bert_15/perplexity -->

The place is a JSON pointer (RFC 6901); in a list of objects a name selects the object that bears it. The file's value,
times 100 before a %, in millions before `million`, must be the quoted number at the precision quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COMMENT = re.compile(r"<!--\s*(?P<file>[^\s#]+\.json)#(?P<pointer>\S*)\s*-->")
_NUMBER = re.compile(
    r"(?P<sign>[-−+]?)(?P<digits>\d{1,3}(?:,\d{3})+|\d+)(?P<decimals>\.\d+)?(?P<unit> ?%| million)?[*_]*\s?$"
)

_FIGURE = re.compile(
    r"(?<![≤≥<>=~\w.])(?<![≤≥<>=~] )"
    r"(?:\d+\.\d+(?![\d²])|\d{1,3}(?:,\d{3})*,(?!000\b)\d{3}|\d+(?= (?:ms|MB|GB|times|seconds)\b))"
)
_ABOUT = re.compile(
    r"[Mm]easured on|\bfaster\b|as fast|as many|per second|rows/s|[Pp]erplexity|BLEU|[Aa]ccuracy|[Aa]cceptance|"
    r"[Aa]ccepted|total variation|effective draws|benchmark|log-likelihood"
)
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_GENERATED = re.compile(r"<!-- (evidence|figures): .*?<!-- end of \1 -->", re.DOTALL)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\[[^\]]*\]\([^)]*\)|arXiv [\d.]+", re.DOTALL)


@dataclass(frozen=True)
class Quote:
    """A number with its comment; `problem` says why the comment is no good, if it is none."""

    where: str
    number: str
    value: float
    tolerance: float
    file: str
    pointer: str
    problem: str = ""


def quotes(text: str, name: str) -> Iterator[Quote]:
    """All comments of a document, but for examples in code, that name a result file."""
    text = _FENCED.sub(lambda block: "\n" * block.group().count("\n"), text)
    for found in _COMMENT.finditer(text):
        where = f"{name}, line {text.count(chr(10), 0, found.start()) + 1}"
        number = _NUMBER.search(text[max(0, found.start() - 40) : found.start()])
        if number is None:
            yield Quote(where, "", 0, 0, found["file"], found["pointer"], "no number stands before the comment")
            continue
        decimals = number["decimals"] or ""
        size = float(number["digits"].replace(",", "") + decimals)
        scale = {"%": 0.01, "million": 1e6}.get((number["unit"] or "").strip(), 1.0)
        sign = -1 if number["sign"] in ("-", "−") and number["sign"] else 1
        tolerance = 0.5 * 10.0 ** -max(0, len(decimals) - 1) * scale * (1 + 1e-6)
        yield Quote(where, number.group().strip(), sign * size * scale, tolerance, found["file"], found["pointer"])


def lookup(content: Any, pointer: str) -> Any:
    """The value at a pointer. Raises `KeyError` with the part that is not there."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(content, list):
            named = [one for one in content if isinstance(one, dict) and one.get("name") == key]
            content = named[0] if named else dict(enumerate(content))[int(key) if key.isdigit() else -1]
        else:
            content = content[key]
    return content


def problem(quote: Quote, root: Path) -> str:
    """What is wrong with a quote, or nothing."""
    if quote.problem:
        return f"{quote.where}: {quote.problem}"
    file = root / quote.file
    if not file.is_file():
        return f"{quote.where}: there is no {quote.file}"
    try:
        value = lookup(json.loads(file.read_text(encoding="utf-8")), quote.pointer)
    except KeyError:
        return f"{quote.where}: {quote.file} has no {quote.pointer}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{quote.where}: {quote.pointer} of {quote.file} is no number"
    if abs(value - quote.value) > quote.tolerance:
        return f"{quote.where}: quotes {quote.number}, but {quote.file} has {value} at {quote.pointer}"
    return ""


def unsourced(text: str) -> list[str]:
    """Paragraphs and tables that speak of measurements and hold a figure without a comment: their first 60 characters.

    Some go unseen: whole numbers without a unit, round thousands, limits after ≤, code. So does what stands between
    `<!-- evidence: COMMAND -->` (or `figures:`) and `<!-- end of evidence -->`: a test of its own compares it.
    """
    plain = _CODE.sub("", _GENERATED.sub("", text))
    found = []
    for block in re.split(r"\n\s*\n", plain):
        shown = " ".join(_COMMENT.sub("", block).split())
        bare = len(_FIGURE.findall(shown)) - len(_COMMENT.findall(block))
        if bare > 0 and _ABOUT.search(shown):
            found.append(shown[:60])
    return found
