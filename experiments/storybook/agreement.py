"""Pairs of sentences that differ in agreement alone, made from a seed; a model should prefer the grammatical one.

The kinds follow Marvin & Linzen (2018) and BLiMP (Warstadt et al. 2020): the number of a verb, simply, across a
prepositional phrase and across a relative clause; reflexives; determiners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

_PEOPLE = (
    "boy",
    "girl",
    "man",
    "woman",
    "doctor",
    "teacher",
    "soldier",
    "lady",
    "brother",
    "sister",
    "friend",
    "child",
)
_PLURALS = {"man": "men", "woman": "women", "lady": "ladies", "child": "children"}
_THINGS = ("house", "tree", "window", "door", "table", "chair", "letter", "book", "garden", "carriage", "river", "road")
_VERBS = (("is", "are"), ("was", "were"), ("has", "have"), ("knows", "know"), ("wants", "want"), ("likes", "like"))
_ENDS = {
    "be": ("very happy", "in the garden", "quite old", "ready to go", "not at home"),
    "have": ("a little money", "two dogs", "no time for it", "a new house"),
    "do": ("the answer", "the old house", "that story", "a good dinner"),
}
_NEAR = ("near", "behind", "beside")
_PAST = ("saw", "met", "helped", "followed")
_HARM = ("hurt", "hid", "washed", "saved", "blamed")


class Pair(NamedTuple):
    """`kind` names the construction."""

    kind: str
    good: str
    bad: str


def pairs(per_kind: int = 80, seed: int = 0) -> list[Pair]:
    """`per_kind` different pairs of each kind."""
    made: list[Pair] = []
    for number, (kind, make) in enumerate(_KINDS.items()):
        random = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, number]))
        found: dict[Pair, None] = {}
        while len(found) < per_kind:
            found.setdefault(Pair(kind, *make(random)))
        made.extend(found)
    return made


def _pick(random: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(random.integers(len(options)))]


def _noun(word: str, plural: bool) -> str:
    return _PLURALS.get(word, word + "s") if plural else word


def _verb(random: np.random.Generator) -> tuple[tuple[str, str], str]:
    verb = _pick(random, _VERBS)
    kind = "be" if verb[0] in ("is", "was") else "have" if verb[0] == "has" else "do"
    return verb, _pick(random, _ENDS[kind])


def _agree(random: np.random.Generator, between: Callable[[bool], str]) -> tuple[str, str]:
    """The + noun + something of the other number in between + verb."""
    plural = bool(random.integers(2))
    subject = _noun(_pick(random, _PEOPLE), plural)
    forms, end = _verb(random)
    start = f"The {subject}{between(plural)}"
    return f"{start} {forms[plural]} {end}.", f"{start} {forms[not plural]} {end}."


def _simple(random: np.random.Generator) -> tuple[str, str]:
    return _agree(random, lambda plural: "")


def _prepositional(random: np.random.Generator) -> tuple[str, str]:
    return _agree(random, lambda plural: f" {_pick(random, _NEAR)} the {_noun(_pick(random, _THINGS), not plural)}")


def _relative(random: np.random.Generator) -> tuple[str, str]:
    def clause(plural: bool) -> str:
        return f" that the {_noun(_pick(random, _PEOPLE), not plural)} {_pick(random, _PAST)}"

    return _agree(random, clause)


def _reflexive(random: np.random.Generator) -> tuple[str, str]:
    plural = bool(random.integers(2))
    who = _pick(
        random, ("boy", "man", "king", "brother") if random.integers(2) else ("girl", "woman", "lady", "sister")
    )
    one = "himself" if who in ("boy", "man", "king", "brother") else "herself"
    start = f"The {_noun(who, plural)} {_pick(random, _HARM)}"
    end = _pick(random, ("", " again", " at last", " that day", " in the garden"))
    good, bad = ("themselves", one) if plural else (one, "themselves")
    return f"{start} {good}{end}.", f"{start} {bad}{end}."


def _determiner(random: np.random.Generator) -> tuple[str, str]:
    plural = bool(random.integers(2))
    noun = _noun(_pick(random, _THINGS + _PEOPLE), plural)
    near = bool(random.integers(2))
    words = ("this", "these") if near else ("that", "those")
    start = f"{_pick(random, ('She', 'He', 'I', 'We'))} {_pick(random, ('saw', 'liked', 'remembered', 'knew'))}"
    return f"{start} {words[plural]} {noun}.", f"{start} {words[not plural]} {noun}."


_KINDS: dict[str, Callable[[np.random.Generator], tuple[str, str]]] = {
    "verb": _simple,
    "verb, prepositional phrase between": _prepositional,
    "verb, relative clause between": _relative,
    "reflexive": _reflexive,
    "determiner": _determiner,
}
