"""Distributions over texts of different length: a prior over the number of tokens, and what a token may cost.

    uniform   log p(n) = 0
    poisson   log p(n) = n log λ − λ − log n!
    corpus    log p(n) = log(texts with n tokens / texts)

The bounds of the kernel cut p off and it is not normalised again: only ratios count. The declared convention for
energies of different length is an offset c a token, E(x) − c n: with c = 0 they are compared as they are; with the
slope of E over n on real text, a token more of average cost neither helps nor harms.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence as List
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from maskropolis.errors import InputError, unknown_name
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences, concatenate
from maskropolis.targets.energy import Energy
from maskropolis.targets.enumeration import all_states

PRIORS = ("uniform", "poisson", "corpus")


@dataclass(frozen=True)
class LengthPrior:
    """p(n) for n free tokens. `file`: the lengths of the texts of a corpus in tokens, a whole number on each line.

    Raises `InputError` for an unknown name, a mean that is not positive, or a malformed file.
    """

    name: str = "uniform"
    mean: float = 12.0
    file: str = ""

    def __post_init__(self) -> None:
        if self.name not in PRIORS:
            raise unknown_name("prior over lengths", self.name, PRIORS)
        if self.name == "poisson" and not (math.isfinite(self.mean) and self.mean > 0):
            raise InputError(f"mean length {self.mean} is out of range; expected a positive number of tokens")
        if self.name == "corpus":
            _counts(self.file)

    def log_prob(self, lengths: Tensor) -> Tensor:
        """[C] float64 for `lengths` [C]; −inf for a length that the corpus does not have."""
        n = lengths.double()
        if self.name == "poisson":
            return n * math.log(self.mean) - self.mean - torch.lgamma(n + 1)
        if self.name == "corpus":
            counts = _counts(self.file)
            share = [counts.get(length, 0) / sum(counts.values()) for length in lengths.tolist()]
            return torch.tensor(share, dtype=torch.float64, device=lengths.device).log()
        return torch.zeros_like(n)


@lru_cache(maxsize=8)
def _counts(file: str) -> dict[int, int]:
    try:
        numbers = [int(line) for line in Path(file).read_text(encoding="utf-8").split()]
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read lengths from '{file}': {error}; expected a whole number on each line") from None
    if not numbers or min(numbers) < 1:
        raise InputError(f"the file '{file}' holds no lengths; expected whole numbers of at least 1")
    return dict(Counter(numbers))


def token_offset(model: MaskedLM, energy: Energy, texts: List[Sequences]) -> float:
    """c: the slope of E(x) over n by least squares on real text, nats a token. `texts` of at least two lengths."""
    lengths = torch.cat([text.free_counts for text in texts]).double()
    energies = torch.cat([energy.evaluate(model, text).energy for text in texts])
    if len(lengths.unique()) < 2:
        raise InputError("all texts have the same length; expected texts of several lengths to estimate an offset")
    from_mean = lengths - lengths.mean()
    return float((from_mean * energies).sum() / (from_mean**2).sum())


def all_lengths(model: MaskedLM, template: Sequences, most: int) -> Sequences:
    """Every filling of the one row `template` with each of its runs of free tokens at every length, at most `most` free
    tokens together; all rows of one width, padding 0."""
    free, tokens = template.free[0].tolist(), template.tokens[0].tolist()
    grouped = itertools.groupby(range(len(free)), key=lambda t: free[t])
    pieces = [(may, [tokens[t] for t in group]) for may, group in grouped]
    some = int(model.allowed.nonzero()[0, 0])
    found = []
    for sizes in itertools.product(range(1, most + 1), repeat=sum(may for may, _ in pieces)):
        if sum(sizes) <= most:
            size = iter(sizes)
            resized = [(may, [some] * next(size) if may else ids) for may, ids in pieces]
            row = [(token, may) for may, ids in resized for token in ids]
            found.append(all_states(model, Sequences.from_lists([[i for i, _ in row]], [[may for _, may in row]])))
    return concatenate(found)
