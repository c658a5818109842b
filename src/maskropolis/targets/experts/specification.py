"""Experts by name: `keyword:sea:5` is the expert `keyword` for the word "sea" with weight 5."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from maskropolis.errors import InputError, unknown_name
from maskropolis.models.text.codec import TextCodec
from maskropolis.targets.experts import Expert
from maskropolis.targets.experts.counting import Length, keyword, regex
from maskropolis.targets.experts.function import function
from maskropolis.targets.experts.hamming import Hamming
from maskropolis.targets.experts.networks import Causal, Classifier, Embedding
from maskropolis.targets.experts.smiles import SmilesValidity

FORMS = {
    "classifier": "classifier:DIR:LABEL:WEIGHT",
    "causal": "causal:DIR:WEIGHT",
    "hamming": "hamming:REFERENCE:WEIGHT",
    "embedding": "embedding:DIR:REFERENCE:WEIGHT",
    "keyword": "keyword:WORD:WEIGHT",
    "regex": "regex:EXPRESSION:WEIGHT",
    "length": "length:WORDS:WEIGHT",
    "smiles-validity": "smiles-validity:WEIGHT",
    "python": "python:MODULE:FUNCTION:WEIGHT",
}
_DIGITS = 9
"""Most digits of a number of words."""
_ONLY_ATTRACT = ("classifier", "causal", "length", "smiles-validity")


@dataclass(frozen=True)
class Specification:
    """`kind`, what stands between it and the weight, and the weight α."""

    kind: str
    about: str
    weight: float

    @classmethod
    def parse(cls, text: str) -> Specification:
        """Raises `InputError` for an unknown kind, a weight that is none, or one whose sign makes no sense."""
        kind, _, rest = text.partition(":")
        if kind not in FORMS:
            raise unknown_name("expert", kind, FORMS)
        about, _, number = rest.rpartition(":")
        bare = FORMS[kind] == f"{kind}:WEIGHT"
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if bool(about) == bare or not math.isfinite(weight):
            raise InputError(f"the expert '{text}' is malformed; expected {FORMS[kind]}, the weight a number")
        if weight < 0 and kind in _ONLY_ATTRACT:
            raise InputError(
                f"the expert '{text}' has a negative weight, under which its energy has no bottom; expected one ≥ 0"
                + (", and the label that is wanted" if kind == "classifier" else "")
            )
        return cls(kind, about, weight)

    @property
    def code(self) -> str | None:
        """`module:function` of the user's code that building it imports, if it does."""
        return self.about if self.kind == "python" else None

    def build(self, codec: TextCodec, device: torch.device, trust: bool = False) -> Expert:
        """Load or make it; code that comes with a network runs only with `trust`. Raises `InputError`, `ModelError`."""
        makers: dict[str, Callable[[], Expert]] = {
            "classifier": lambda: Classifier.load(*self._last(), device, trust),
            "causal": lambda: Causal.load(self.about, device, trust),
            "hamming": lambda: Hamming(self.about, tuple(codec.ids(self.about, "the reference"))),
            "embedding": lambda: Embedding.load(*self._first(), device, trust),
            "keyword": lambda: keyword(self.about),
            "regex": lambda: regex(self.about),
            "length": lambda: Length(self._count()),
            "smiles-validity": SmilesValidity.load,
            "python": lambda: function(*self._last()),
        }
        return makers[self.kind]()

    def _first(self) -> tuple[str, str]:
        before, mark, after = self.about.partition(":")
        return self._two(before, mark, after)

    def _last(self) -> tuple[str, str]:
        before, mark, after = self.about.rpartition(":")
        return self._two(before, mark, after)

    def _two(self, before: str, mark: str, after: str) -> tuple[str, str]:
        if not (before and mark and after):
            raise InputError(f"the expert '{self.kind}:{self.about}' is malformed; expected {FORMS[self.kind]}")
        return before, after

    def _count(self) -> int:
        if not (self.about.isdecimal() and len(self.about) <= _DIGITS and int(self.about) >= 1):
            raise InputError(
                f"the expert 'length:{self.about[:40]}' is malformed; expected a number of words, at least 1"
            )
        return int(self.about)
