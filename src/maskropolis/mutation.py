"""Effects of mutations and certainty of positions under a masked language model: `mutate` and `entropy`.

The scores are those of `targets.mutations.marginals`, after Meier et al. (2021); above 0 is likelier than the wild
type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from maskropolis.errors import InputError, unknown_name
from maskropolis.models import opened
from maskropolis.models.text.codec import listed_texts
from maskropolis.models.text.context import encode_in_context
from maskropolis.records import Record
from maskropolis.sequences import Sequences
from maskropolis.targets.mutations.marginals import (
    masked_marginals,
    pll_differences,
    profile,
    rows_needed,
    wt_marginals,
)
from maskropolis.targets.mutations.notation import Mutant, Notation, substitutes

METHODS = ("masked-marginals", "wt-marginals", "pll-difference")
MOST_MUTANTS = 2_000_000
Observe = Callable[[int], None]


@dataclass(frozen=True)
class MutantScore:
    """What a model says of one mutant.

    Attributes:
        record: the wild type and where it came from.
        mutant: e.g. `A23V:K45R`. positions, wild_type, substitutes: of each substitution; tokens as entries.
        scores: by method, in nats.
        other: fields of the list of mutants, carried along.
    """

    record: Record
    mutant: str
    positions: tuple[int, ...]
    wild_type: tuple[str, ...]
    substitutes: tuple[str, ...]
    scores: dict[str, float]
    other: dict[str, Any] = field(default_factory=dict)

    def as_row(self) -> dict[str, Any]:
        """Flat: name (if there is one), mutant, one field a method, and what was carried along."""
        named = {"name": self.record.other["name"]} if self.record.other.get("name") else {"line": self.record.line}
        scores = {method.replace("-", "_"): round(value, 6) for method, value in self.scores.items()}
        return {**self.other, **named, "mutant": self.mutant, **scores}


@dataclass(frozen=True)
class PositionScore:
    """How sure a model is of one position. entropy: nats; log_probability: of the `token` there, given all others;
    likeliest: (token, probability) of the likeliest, in order."""

    record: Record
    position: int
    token: str
    entropy: float
    log_probability: float
    likeliest: tuple[tuple[str, float], ...]

    def as_row(self) -> dict[str, Any]:
        """Flat; the likeliest as `V:0.31 I:0.2`."""
        named = {"name": self.record.other["name"]} if self.record.other.get("name") else {"line": self.record.line}
        shown = " ".join(f"{token}:{p:.3g}" for token, p in self.likeliest)
        values = {"entropy": round(self.entropy, 6), "log_probability": round(self.log_probability, 6)}
        return {**named, "position": self.position, "token": self.token, **values, "likeliest": shown}


@dataclass(frozen=True, eq=False)
class Task:
    """The mutants of one sequence, read and ready. sequences: one row. others: fields carried along, one a mutant."""

    record: Record
    sequences: Sequences
    notation: Notation
    mutants: list[Mutant]
    others: list[dict[str, Any]]

    def rows(self, methods: Iterable[str]) -> int:
        """Model rows that these methods take."""
        return sum(rows_needed(len(self.notation.tokens), self.mutants, method) for method in methods)


def mutate(
    sequences: str | Iterable[str],
    model: Any = None,
    *,
    mutants: str | Sequence[str] | None = None,
    method: str | Sequence[str] = "masked-marginals",
    to: str | None = None,
    first: int = 1,
) -> list[MutantScore]:
    """Score mutants of one or several sequences: `mutate("MKTAYIAK", model, mutants=["K2R", "K2R:T3S"])[0].scores`.

    `model` is as in `maskropolis.score`; load it with `format="fasta"` for proteins, one letter a token. Without
    `mutants`, all point mutants by the set `to` (see `sample --allow`): by default the amino acids, or else every token
    that may be written. `method`: one or several of `METHODS`. `first` is the number of the first position. Raises
    `InputError` naming the mutant that does not fit.
    """
    methods = require_methods(listed_texts(method, "the method"))
    loaded = opened(model)
    listed = None if mutants is None else listed_texts(mutants, "the list of mutants")
    given: list[tuple[str, dict[str, Any]]] | None = None if listed is None else [(text, {}) for text in listed]
    tasks = [prepare(record, loaded, given, to, first) for record in _records(sequences)]
    return [score for task in tasks for score in score_mutants(task, loaded, methods)]


def entropy(
    sequences: str | Iterable[str], model: Any = None, *, to: str | None = None, first: int = 1, most: int = 5
) -> list[PositionScore]:
    """Entropy of the masked conditional at every position: `entropy("MKTAYIAK", model)[0].entropy`, n model rows.

    The entropy is over the whole vocabulary; the `most` likeliest tokens are among the set `to`, as in `mutate`.
    """
    loaded = opened(model)
    return [score for record in _records(sequences) for score in score_positions(record, loaded, to, first, most)]


def require_methods(names: Iterable[str]) -> tuple[str, ...]:
    """The methods named, in the order of `METHODS`. Raises `InputError` for another, or none."""
    named = set(names)
    for name in named - set(METHODS):
        raise unknown_name("method", name, METHODS)
    if not named:
        raise InputError(f"no method is named; expected one of {', '.join(METHODS)}")
    return tuple(method for method in METHODS if method in named)


def prepare(
    record: Record,
    model: Any,
    mutants: Sequence[tuple[str, dict[str, Any]]] | None,
    to: str | None = None,
    first: int = 1,
) -> Task:
    """Read the sequence and its mutants, pairs of notation and fields to carry along; the model is not run."""
    sequences, notation = _read(record, model, first)
    if mutants is None:
        others = substitutes(model.codec, model.allowed, to)
        if len(notation.tokens) * int(others.sum()) > MOST_MUTANTS:
            raise InputError(
                f"{record.where} has {len(notation.tokens) * int(others.sum())} point mutants, more than the "
                f"{MOST_MUTANTS} that are scored at once; name fewer substitutes with --to, or the mutants themselves"
            )
        every = list(notation.every(others))
        if not every:
            raise InputError(f"{record.where} has no point mutants by the set '{to}'; expected a larger one")
        return Task(record, sequences, notation, every, [{}] * len(every))
    if not mutants:
        raise InputError("the list of mutants is empty; expected e.g. A23V,K45R")
    found = [notation.read(text) for text, _ in mutants]
    return Task(record, sequences, notation, found, [other for _, other in mutants])


def score_mutants(
    task: Task, model: Any, methods: Sequence[str], observe: Observe = lambda rows: None
) -> Iterator[MutantScore]:
    """Scores in the order of the mutants; PLL differences, which cost most, as the work goes on."""
    columns: dict[str, Iterator[float]] = {}
    for method in methods:
        columns[method] = iter(_FUNCTIONS[method](model, task.sequences, task.mutants, observe))
    pieces, first = model.codec.pieces, task.notation.first
    for mutant, other in zip(task.mutants, task.others, strict=True):
        yield MutantScore(
            task.record,
            mutant.name,
            tuple(s.place + first for s in mutant.substitutions),
            tuple(pieces([s.old for s in mutant.substitutions])),
            tuple(pieces([s.new for s in mutant.substitutions])),
            {method: next(column) for method, column in columns.items()},
            other,
        )


def score_positions(
    record: Record,
    model: Any,
    to: str | None = None,
    first: int = 1,
    most: int = 5,
    observe: Observe = lambda rows: None,
) -> list[PositionScore]:
    """One `PositionScore` for each token of a record."""
    if most < 1:
        raise InputError(f"{most} likeliest tokens are too few; expected at least 1")
    sequences, notation = _read(record, model, first)
    found = profile(model, sequences, substitutes(model.codec, model.allowed, to), most, observe)
    out = []
    for place, token in enumerate(model.codec.pieces(notation.tokens)):
        names, shares = model.codec.pieces(found.likeliest[place].tolist()), found.probabilities[place].tolist()
        surest = tuple(zip(names, shares, strict=True))
        out.append(
            PositionScore(
                record, place + first, token, float(found.entropy[place]), float(found.log_probabilities[place]), surest
            )
        )
    return out


_FUNCTIONS: dict[str, Callable[..., Iterable[float]]] = {
    "masked-marginals": masked_marginals,
    "wt-marginals": wt_marginals,
    "pll-difference": pll_differences,
}


def _read(record: Record, model: Any, first: int) -> tuple[Sequences, Notation]:
    encoded = encode_in_context(model.codec, record.text, record.prefix, record.suffix, where=record.where)
    sequences = model.codec.pad([encoded.ids], [encoded.scored]).to(model.device)
    tokens = [token for token, scored in zip(encoded.ids, encoded.scored, strict=True) if scored]
    return sequences, Notation(model.codec, tokens, model.allowed, first, record.where)


def _records(sequences: str | Iterable[str]) -> list[Record]:
    listed = listed_texts(sequences, "the sequence")
    return [Record(text, line, f"sequence {line}") for line, text in enumerate(listed, start=1)]
