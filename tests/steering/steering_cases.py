"""Tabular targets with experts and constraints, small enough to enumerate."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.constraints import Constraints
from maskropolis.targets.constraints.classes import TokenSet
from maskropolis.targets.constraints.repeats import NoRepeat
from maskropolis.targets.constraints.words import Word
from maskropolis.targets.energy import ENERGIES
from maskropolis.targets.enumeration import all_states
from maskropolis.targets.experts.counting import keyword, regex
from maskropolis.targets.experts.function import Function
from maskropolis.targets.experts.hamming import Hamming
from maskropolis.targets.steered import SteeredEnergy

torch.set_num_threads(1)
LETTERS = "abcde"
TOKENS = 3
SIZE = TOKENS + 1

EXACT = [
    "single-site",
    "single-site:scan=back-and-forth",
    "single-site:top_k=2",
    "single-site:early_rejection=no,reuse_row=no,keep_conditionals=no",
    "block",
    "block:k=3",
    "block:contiguous=yes",
    "path:k=2",
    "path:k=3,contiguous=yes",
    "informed",
    "informed:balancing=sqrt,top_k=2",
    "delayed",
    "delayed:kernel=single-site,surrogate=grouped/2",
    "staged:kernel=path(k=2),terms=1",
    "staged:terms=0",
    "mixture:single-site=2,block(k=3)=1,informed=1",
    "gwg",
    "discrete-langevin:step_size=2",
]


def decode(sequences: Sequences) -> list[str]:
    """Token 0 reads a, 1 reads b, …; the mask reads _."""
    rows = zip(sequences.tokens.tolist(), sequences.lengths.tolist(), strict=True)
    return ["".join(LETTERS[token] if token < TOKENS else "_" for token in row[:length]) for row, length in rows]


def model(lengths: Sequence[int] = (4,), seed: int = 1) -> TabularMaskedLM:
    return TabularMaskedLM.random(TOKENS, list(lengths), seed, spread=1.5)


def states(of: TabularMaskedLM, free: Sequence[bool] = (True, True, False, True)) -> Sequences:
    mask = torch.tensor([list(free)])
    return all_states(of, Sequences(torch.arange(len(free))[None] % TOKENS, mask, torch.ones_like(mask)))


def word(*spellings: Sequence[int], required: bool = True, continues: Sequence[int] = (), text: str = "") -> Word:
    goes_on = torch.zeros(SIZE, dtype=torch.bool)
    goes_on[list(continues)] = True
    return Word(text or "w", required, tuple(map(tuple, spellings)), goes_on, in_text=bool(text))


def tokens(*allowed: int, first: int = 1, last: int | None = None) -> TokenSet:
    member = torch.zeros(SIZE, dtype=torch.bool)
    member[list(allowed)] = True
    return TokenSet("allow", member, first, last)


def vowels(texts: list[str]) -> list[float]:
    """Of both signs."""
    return [text.count("a") - 0.7 * text.count("c") for text in texts]


EXPERTS = (
    (1.3, Function("vowels", vowels)),
    (2.0, Hamming("ab", (0, 1, 1, 2))),
    (-0.8, regex("ab")),
    (0.5, keyword("cc")),
)
CONSTRAINTS = {
    "a set everywhere": (tokens(0, 2),),
    "sets by position": (tokens(0, 1, first=1, last=2), tokens(2, 1, first=3, last=3)),
    "a required token": (word([1]),),
    "a required pair": (word([0, 1], [1, 1]),),
    "a required pair that ends a word": (word([0], [0, 1], continues=[2]),),
    "a forbidden pair": (word([0, 1], [2, 2], required=False),),
    "a forbidden word of the text": (word([0, 1], required=False, continues=[2], text="bacb"),),
    "no token twice in a row of two": (NoRepeat(2, SIZE, TOKENS),),
    "several": (word([1]), word([2, 2], required=False), NoRepeat(2, SIZE, TOKENS), tokens(0, 1, 2, first=2)),
}


def target(energy: str = "norm", *parts: object, experts: tuple = ()) -> SteeredEnergy:
    return SteeredEnergy(ENERGIES[energy], decode, experts, Constraints(tuple(parts)))


def support(of: SteeredEnergy, every: Sequences) -> Sequences:
    """The states where the constraints hold."""
    return every.rows(of.constraints.hold(every, decode(every)))
