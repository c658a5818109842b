"""Blinded sheets for human raters: which sentences, in which order, under which names; and the key that undoes it.

A randomised block design. A block holds one sentence of every system: the same line of each where systems are aligned
(translations of the same sources), else one drawn at random, from as many chains as there are. Every rater sees all
blocks, in an order of their own, the sentences of a block side by side in an order of their own too. So raters, places
in the sheet and systems are balanced, and the differences within blocks are what a paired test needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from maskropolis.errors import InputError
from maskropolis.evaluation.systems import System

FORMAT = 1


@dataclass(frozen=True)
class Question:
    """What raters are asked of every sentence: a column name and a line of text."""

    name: str
    text: str


QUESTIONS = (
    Question("fluency", "Is the sentence grammatical and natural?"),
    Question("coherence", "Does the sentence make sense as a whole?"),
)


@dataclass(frozen=True)
class Item:
    """One sentence to rate; `code` says nothing about its system."""

    code: str
    text: str
    system: str
    block: int


@dataclass(frozen=True)
class Design:
    """Everything about a rating study: the content of the key.

    Attributes:
        items: all sentences, block by block.
        orders: for each rater, the codes in the order of their sheet.
        scale: answers are whole numbers from 1 to this.
        sources: SHA-256 of the sentences of each system and how they were made.
    """

    items: tuple[Item, ...]
    orders: tuple[tuple[str, ...], ...]
    questions: tuple[Question, ...]
    scale: int
    aligned: bool
    seed: int
    sources: dict[str, dict[str, Any]]

    @property
    def systems(self) -> list[str]:
        return list(self.sources)

    def sheet(self, rater: int) -> list[Item]:
        """The sentences of rater 1, 2, … in order."""
        known = {item.code: item for item in self.items}
        return [known[code] for code in self.orders[rater - 1]]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, values: Any) -> Design:
        """Raises `InputError` for what is no key of this format."""
        try:
            if values["format"] != FORMAT:
                raise InputError(f"the key has format {values['format']}; this version reads format {FORMAT}")
            return cls(
                items=tuple(Item(**item) for item in values["items"]),
                orders=tuple(tuple(order) for order in values["orders"]),
                questions=tuple(Question(**question) for question in values["questions"]),
                scale=int(values["scale"]),
                aligned=bool(values["aligned"]),
                seed=int(values["seed"]),
                sources=dict(values["sources"]),
            )
        except (KeyError, TypeError, ValueError):
            raise InputError("the key is damaged; expected key.json as `maskropolis rate export` wrote it") from None


def design(
    systems: Sequence[System],
    *,
    per_system: int = 50,
    raters: int = 3,
    seed: int = 0,
    aligned: bool = False,
    questions: Sequence[Question] = QUESTIONS,
    scale: int = 3,
) -> Design:
    """Draw `per_system` sentences of each system without replacement and put them in order for each rater.

    Raises `InputError` for too few sentences, no raters, a scale outside 2 to 9, and, if `aligned`, for systems of
    different lengths.
    """
    if raters < 1 or per_system < 1:
        raise InputError(f"{raters} raters of {per_system} sentences a system; expected at least 1 of each")
    if not 2 <= scale <= 9:
        raise InputError(f"a scale of 1 to {scale} is out of range; expected its end between 2 and 9")
    _require_questions(questions)
    random = np.random.default_rng(seed)
    drawn = _drawn(systems, per_system, aligned, random)
    codes = iter(_codes(per_system * len(systems), random))
    blocks = [
        [Item(next(codes), system.texts[lines[block]], system.name, block) for system, lines in drawn]
        for block in range(per_system)
    ]
    orders = [
        tuple(blocks[b][s].code for b in random.permutation(per_system) for s in random.permutation(len(systems)))
        for _ in range(raters)
    ]
    return Design(
        items=tuple(item for block in blocks for item in block),
        orders=tuple(orders),
        questions=tuple(questions),
        scale=scale,
        aligned=aligned,
        seed=seed,
        sources={system.name: {"sha256": system.digest, "signature": system.signature} for system in systems},
    )


def _require_questions(questions: Sequence[Question]) -> None:
    names = [question.name for question in questions]
    if not names:
        raise InputError("there is no question; expected at least one")
    taken = {"rater", "item", "text"}
    for name in names:
        if name in taken or not name.replace("-", "_").isidentifier():
            raise InputError(
                f"the question '{name}' cannot name a column; expected letters, digits, - and _, once each"
            )
        taken.add(name)


def _drawn(
    systems: Sequence[System], count: int, aligned: bool, random: np.random.Generator
) -> list[tuple[System, list[int]]]:
    """For each system the numbers of the sentences drawn, one a block."""
    sizes = {system.name: len(system.texts) for system in systems}
    if len(sizes) < len(systems):
        raise InputError("two systems have the same name; expected different ones")
    if aligned and len(set(sizes.values())) > 1:
        said = ", ".join(f"'{name}' {size}" for name, size in sizes.items())
        raise InputError(f"aligned systems need equally many sentences; found {said}")
    for name, size in sizes.items():
        if size < count:
            raise InputError(f"'{name}' holds {size} sentences, fewer than the {count} to rate; lower --per-system")
    together = random.permutation(min(sizes.values(), default=0))[:count].tolist()
    return [(system, together if aligned else _spread(system.groups, count, random)) for system in systems]


def _spread(groups: Sequence[int], count: int, random: np.random.Generator) -> list[int]:
    """`count` places at random, as equally many from each group (chain) as can be."""
    met: Counter[int] = Counter()
    order = []
    for place in random.permutation(len(groups)).tolist():
        met[groups[place]] += 1
        order.append((met[groups[place]], place))
    chosen = [place for _, place in sorted(order, key=lambda pair: pair[0])[:count]]
    return [chosen[i] for i in random.permutation(count).tolist()]


def _codes(count: int, random: np.random.Generator) -> list[str]:
    """Different random codes that a person can read out: no 0 and O, no 1 and l."""
    letters = np.array(list("abcdefghjkmnpqrstuvwxyz23456789"))
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(random.choice(letters, 6))] = None
    return list(found)
