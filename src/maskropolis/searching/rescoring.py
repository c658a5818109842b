"""Ranks given translations by the energy of a conditional model, alone or added to scores that they came with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from maskropolis.errors import InputError
from maskropolis.models.conditional.protocol import Conditional
from maskropolis.models.conditional.text import listed
from maskropolis.records import read_lines
from maskropolis.targets.energy import MaskedEnergy

MARK = "|||"


@dataclass(frozen=True)
class Scored:
    """A candidate: its text, the score that it came with (higher is better), its energy and number of tokens."""

    text: str
    score: float | None = None
    energy: float | None = None
    tokens: int = 0


@dataclass(frozen=True)
class NBest:
    """The candidates of one source, whose number in its file counts from 1."""

    number: int
    source: str
    candidates: list[Scored]


def read_n_best(path: str, sources: Sequence[str] | None = None) -> list[NBest]:
    """N-best lists from JSON lines as `maskropolis translate` writes them, or in the form of Moses.

    Moses: `number ||| text ||| features ||| score`, the number of the source counted from 0, features optional. The
    sources come from the JSON, or from `sources`; then each of them has a list, if an
    empty one. Raises `InputError` naming file and line.
    """
    json_lines = Path(path).suffix in (".jsonl", ".ndjson") or Path(path).suffixes[-2:-1] == [".jsonl"]
    found: dict[int, NBest] = {}
    for line, text in read_lines(path):
        where = f"{path}, line {line}"
        for number, source, candidate in _of_json(text, where) if json_lines else _of_moses(text, where):
            known = _source(number, source, sources, where)
            found.setdefault(number, NBest(number, known, []))
            if candidate is not None:
                found[number].candidates.append(candidate)
    if not found:
        raise InputError(f"'{path}' holds no candidates")
    for number, source in enumerate(sources or [], start=1):
        found.setdefault(number, NBest(number, source, []))
    return [found[number] for number in sorted(found)]


def _source(number: int, given: str | None, sources: Sequence[str] | None, where: str) -> str:
    if sources is not None:
        if not 1 <= number <= len(sources):
            raise InputError(f"{where} names source {number}; there are {len(sources)}")
        return sources[number - 1]
    if given is None:
        raise InputError(f"{where} does not hold its source; name the file of sources with --source")
    return given


def _of_moses(text: str, where: str) -> Iterator[tuple[int, str | None, Scored]]:
    parts = [part.strip() for part in text.split(MARK)]
    if len(parts) < 2 or not parts[0].isdecimal():
        raise InputError(f"{where} is no n-best line; expected 'number {MARK} text {MARK} … {MARK} score'")
    try:
        score = float(parts[-1]) if len(parts) > 2 else None
    except ValueError:
        raise InputError(f"{where}: the score '{parts[-1]}' is not a number") from None
    yield int(parts[0]) + 1, None, Scored(parts[1], score)


def _of_json(text: str, where: str) -> Iterator[tuple[int, str | None, Scored | None]]:
    try:
        value = json.loads(text)
        number, source = int(value["line"]), value.get("source")
        listed = [
            (str(one["text"]), None if one.get("score") is None else float(one["score"])) for one in value["candidates"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f'{where} is malformed; expected {{"line": …, "source": …, "candidates": [{{"text": …, "score": number}}]}}'
        ) from None
    if not listed:
        yield number, source, None
    for candidate, score in listed:
        yield number, source, Scored(candidate, score)


def with_energies(
    lists: Iterable[NBest],
    model: Conditional,
    energy: MaskedEnergy,
    chunk: int = 64,
    notify: Callable[[str], None] = lambda message: None,
) -> Iterator[NBest]:
    """The same lists with the energy of every candidate; a source without text has none. Streams, in order.

    `notify` is told of what the vocabulary does not know.
    """
    some: list[NBest] = []
    for one in lists:
        some.append(one)
        if len(some) == chunk:
            yield from _evaluated(some, model, energy, notify)
            some = []
    if some:
        yield from _evaluated(some, model, energy, notify)


def _evaluated(
    lists: list[NBest], model: Conditional, energy: MaskedEnergy, notify: Callable[[str], None]
) -> Iterator[NBest]:
    usable = [one for one in lists if one.source.strip() and one.candidates]
    for one in usable:
        unknown = {
            part: None for text in (one.source, *(c.text for c in one.candidates)) for part in model.unknown(text)
        }
        if unknown:
            shown = listed(list(unknown))
            notify(f"source {one.number} or its candidates: the model does not know {shown}; read as unknown")
    found: dict[int, list[Scored]] = {}
    if usable:
        bound = model.bind([model.source_ids(one.source, f"source {one.number}") for one in usable])
        targets = [
            [model.target_ids(c.text, f"candidate {i} of source {one.number}") for i, c in enumerate(one.candidates, 1)]
            for one in usable
        ]
        owner = [i for i, some in enumerate(targets) for _ in some]
        rows = bound.rows(owner, [tokens for some in targets for tokens in some])
        energies = iter(energy.evaluate(bound, rows).energy.tolist())
        for one, some in zip(usable, targets, strict=True):
            found[one.number] = [
                replace(c, energy=next(energies), tokens=len(tokens))
                for c, tokens in zip(one.candidates, some, strict=True)
            ]
    for one in lists:
        yield NBest(one.number, one.source, found.get(one.number, one.candidates))


def feature(candidate: Scored, per_token: bool) -> float:
    """Minus the energy, per token if asked: higher is better."""
    if candidate.energy is None:
        raise ValueError("the energy of a candidate was not computed")
    return -candidate.energy / (max(1, candidate.tokens) if per_token else 1)


def rank(one: NBest, weight: float | None, per_token: bool) -> NBest:
    """Candidates best first: by energy alone if `weight` is None, else by score − weight·energy.

    Raises `InputError` for a candidate without a score where one is needed.
    """
    if not one.candidates or one.candidates[0].energy is None:
        return one
    values = [feature(candidate, per_token) for candidate in one.candidates]
    if weight is not None:
        values = [s + weight * f for s, f in zip(scores_of(one), values, strict=True)]
    order = torch.tensor(values, dtype=torch.float64).argsort(descending=True, stable=True).tolist()
    return NBest(one.number, one.source, [one.candidates[i] for i in order])


def scores_of(one: NBest) -> list[float]:
    """The given scores. Raises `InputError` if one is missing."""
    missing = [candidate.text for candidate in one.candidates if candidate.score is None]
    if missing:
        raise InputError(f"source {one.number} has a candidate without a score ({missing[0]!r}); rank by energy alone")
    return [float(candidate.score) for candidate in one.candidates if candidate.score is not None]


def as_fields(one: NBest, weight: float | None, per_token: bool) -> dict[str, Any]:
    """One JSON line."""
    listed = []
    for candidate in one.candidates:
        fields: dict[str, Any] = {"text": candidate.text, "score": candidate.score, "energy": candidate.energy}
        if candidate.energy is not None:
            fields["tokens"] = candidate.tokens
            if weight is not None and candidate.score is not None:
                fields["combined"] = candidate.score + weight * feature(candidate, per_token)
        listed.append(fields)
    return {"line": one.number, "source": one.source, "candidates": listed}
