"""What a job of `maskropolis translate` reads: sources, hypotheses and references that belong to them line by line."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from maskropolis.errors import InputError

if TYPE_CHECKING:
    from maskropolis.translation import Line


def lines_of(source: str, hypotheses: str | None) -> Iterator[Line]:
    """The sources, each with the hypothesis on the same line if there is such a file."""
    from maskropolis.records import STANDARD, read_lines
    from maskropolis.translation import Line

    shown = "standard input" if source == STANDARD else source
    if hypotheses is not None:
        _require_as_many(source, hypotheses)
    sources = read_lines(source)
    if hypotheses is None:
        for number, text in sources:
            yield Line(number, text, f"{shown}, line {number}")
        return
    for number, (one, given) in enumerate(itertools.zip_longest(sources, read_lines(hypotheses)), start=1):
        if one is None or given is None:
            shorter = shown if one is None else hypotheses
            raise InputError(f"'{shorter}' ends before line {number}; expected as many hypotheses as sources")
        yield Line(number, one[1], f"{shown}, line {number}", given[1])


def references_of(path: str | None, source: str) -> list[str] | None:
    if path is None:
        return None
    from maskropolis.records import read_lines

    references = [text for _, text in read_lines(path)]
    _require_as_many(source, path)
    return references


def _require_as_many(source: str, other: str) -> None:
    """Raises `InputError` if two files differ in length; pipes and standard input cannot be counted beforehand."""
    from maskropolis.records import read_lines

    if not (Path(source).is_file() and Path(other).is_file()):
        return
    count, found = (sum(1 for _ in read_lines(path)) for path in (source, other))
    if count != found:
        raise InputError(f"'{source}' has {count} lines and '{other}' has {found}; expected as many")


def read_as(source: str, hypotheses: str | None, dtype: str, as_json: bool, detokenise: bool) -> str:
    """What else a resumed job must have in common with the one before: the input files and the form of the output."""
    parts = {"form": f"{'json' if as_json else 'text'}{'(detokenised)' if detokenise else ''}", "dtype": dtype}
    for name, path in (("source", source), ("hypotheses", hypotheses)):
        if path is not None and Path(path).is_file():  # a pipe can be read only once
            with Path(path).open("rb") as stream:
                parts[name] = hashlib.file_digest(stream, "sha256").hexdigest()[:12]
    return "|".join(f"{key}:{value}" for key, value in parts.items())
