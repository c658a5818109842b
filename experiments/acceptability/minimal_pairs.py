"""Minimal pairs by rule from sentences of books: agreement, determiner and noun, word order; drawn from a seed.

A rule finds places in a sentence that it can spoil by changing one word or exchanging two neighbours. It must be sure
that what comes out is wrong, not that it finds every place: doubtful ones (`if he were`, `the crowd were`) are left.
The pairs of `experiments/storybook/agreement.py`, written from templates, are joined to these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

SHORTEST, LONGEST = 5, 20  # words

_SUBJUNCTIVE = re.compile(r"\b(?:if|though|wish|wished|whether|unless|lest|were|suppose|than|or|nor|and|of|as)$", re.I)
_SINGULAR, _PLURAL = {"was": "were", "is": "are", "has": "have"}, {"were": "was", "are": "is", "have": "has"}
_PRONOUN = re.compile(r"\b(he|she|it|they|we) (was|is|has|were|are|have)\b", re.I)
_SUBJECT = re.compile(r"^The ([a-z]+) (was|is|has|were|are|have)\b")
_NEITHER = """
army audience band cattle class committee company couple crew crowd enemy family few gang government group
jury lot majority many mob number others pair party people police poor public rest rich team whole young old
dead wounded sick staff sheep fish deer means series species news other one ones two three dozen score hundred
thousand million head
"""
_COLLECTIVE = frozenset(_NEITHER.split())
_DETERMINED = re.compile(r"\b(this|that|these|those) ([a-z]+)\b", re.I)
_OTHER_NUMBER = {"this": "these", "these": "this", "that": "those", "those": "that"}
_COUNTED = re.compile(r"\b(?:these|those|many|several|few|two|three|four|five|six) ([a-z]+)s\b", re.I)
_COUNTED_NOUN = re.compile(r"\b(these|those|two|three|four|five|six|seven|ten|twenty) ([a-z]+s)\b", re.I)
_ENDS_PHRASE = re.compile(r"[.,;!?]| (?:of|in|on|at|from|with|was|were|had|and|that|which|who|to|as)\b")
_ARTICLE = re.compile(r"\b(the|a|an|my|your|our|their|its|every) ([a-z]+)\b")
_PREPOSITION = re.compile(r"\b(of|in|on|at|from|with|into|by|for|upon|under|through) (the|a|an|my|your|our|their)\b")


class MinimalPair(NamedTuple):
    """`kind` names the rule, `source` the book or `templates`."""

    kind: str
    source: str
    good: str
    bad: str


class Nouns(NamedTuple):
    """Nouns that the text itself counts: `these dogs` makes `dog` one. `plain` are all words in lower case."""

    singular: frozenset[str]
    plain: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Nouns:
        counted: dict[str, int] = {}
        plain: set[str] = set()
        for text in texts:
            plain.update(re.findall(r"\b[a-z]+\b", text))
            for word in _COUNTED.findall(text):
                counted[word.lower()] = counted.get(word.lower(), 0) + 1
        singular = {word for word in counted if word in plain and f"{word}s" in plain and not word.endswith("s")}
        return cls(frozenset(singular - _COLLECTIVE), frozenset(plain))


Rule = Callable[[str, Nouns], Iterator[str]]


def after_pronoun(text: str, nouns: Nouns) -> Iterator[str]:
    """`he was` → `he were`. Not after a word that may ask for a subjunctive or join the pronoun to another."""
    for match in _PRONOUN.finditer(text):
        subject, verb = match[1].lower(), match[2].lower()
        forms = _PLURAL if subject in ("they", "we") else _SINGULAR
        if verb in forms and not _SUBJUNCTIVE.search(text[: match.start()].rstrip()):
            yield _with(text, match, 2, forms[verb])


def after_noun(text: str, nouns: Nouns) -> Iterator[str]:
    """`The dog was` → `The dog were`, at the beginning, for nouns that the text counts."""
    if match := _SUBJECT.search(text):
        noun, verb = match[1], match[2]
        if noun in nouns.singular and verb in _SINGULAR:
            yield _with(text, match, 2, _SINGULAR[verb])
        if noun.removesuffix("s") in nouns.singular and noun.endswith("s") and verb in _PLURAL:
            yield _with(text, match, 2, _PLURAL[verb])


def determiner(text: str, nouns: Nouns) -> Iterator[str]:
    """`this dog` → `these dog`, `those dogs` → `that dogs`."""
    for match in _DETERMINED.finditer(text):
        word, noun = match[1].lower(), match[2]
        plural = word in ("these", "those")
        counted = noun.removesuffix("s") if plural and noun.endswith("s") else "" if plural else noun
        if counted in nouns.singular and (plural or word == "this"):
            yield _with(text, match, 1, _OTHER_NUMBER[word])


def counted_noun(text: str, nouns: Nouns) -> Iterator[str]:
    """`two dogs` → `two dog`. Not before another noun, which `two dog` could describe, but before a mark or a word
    of grammar."""
    for match in _COUNTED_NOUN.finditer(text):
        follows = re.match(
            r"[.,;!?]| (?:of|in|on|at|from|with|was|were|had|and|that|which|who|to|as)\b", text[match.end() :]
        )
        if match[2][:-1] in nouns.singular and follows:
            yield _with(text, match, 2, match[2][:-1])


def article_order(text: str, nouns: Nouns) -> Iterator[str]:
    """`the dog` → `dog the`."""
    for match in _ARTICLE.finditer(text):
        yield text[: match.start()] + f"{match[2]} {match[1]}" + text[match.end() :]


def preposition_order(text: str, nouns: Nouns) -> Iterator[str]:
    """`in the` → `the in`."""
    for match in _PREPOSITION.finditer(text):
        yield text[: match.start()] + f"{match[2]} {match[1]}" + text[match.end() :]


RULES: dict[str, Rule] = {
    "verb after a pronoun": after_pronoun,
    "verb after a noun": after_noun,
    "number of a determiner": determiner,
    "noun after a numeral or determiner": counted_noun,
    "order of article and next word": article_order,
    "order of preposition and article": preposition_order,
}


def from_books(found: Iterable[tuple[str, str]], per_kind: int, seed: int) -> list[MinimalPair]:
    """Up to `per_kind` pairs by each rule from (book, sentence); a sentence serves a rule once, all rules it fits."""
    usable = [(book, text) for book, text in found if _usable(text)]
    nouns = Nouns.of(text for _, text in usable)
    made: list[MinimalPair] = []
    for number, (kind, rule) in enumerate(RULES.items()):
        random = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 1, number]))
        taken = 0
        for index in random.permutation(len(usable)).tolist():
            book, text = usable[index]
            options = sorted(set(rule(text, nouns)))
            if options and taken < per_kind:
                made.append(MinimalPair(kind, book, text, options[int(random.integers(len(options)))]))
                taken += 1
    return made


def _usable(text: str) -> bool:
    """Narration of a middling length: what people say aloud follows rules of its own."""
    return SHORTEST <= len(text.split()) <= LONGEST and not re.search(r"[“”—]|ain['’]t|\bbe\b", text)


def _with(text: str, match: re.Match[str], group: int, word: str) -> str:
    """`text` with `word` in place of a group, its capital kept."""
    word = word.capitalize() if match[group][0].isupper() else word
    return text[: match.start(group)] + word + text[match.end(group) :]
