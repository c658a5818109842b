"""Experts: cheap or costly opinions on a text, as energies that are added to that of the masked language model.

    π(x) ∝ exp(−(E(x) + Σ_i α_i E_i(x)) / τ)

A product of experts: Hinton (2002), Neural Computation 14, 1771; for masked language models Mireshghallah, Goyal &
Berg-Kirkpatrick (2022), Mix and Match, arXiv 2203.13299.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from torch import Tensor

from maskropolis.sequences import Sequences

COUNTING, FUNCTION, NETWORK = range(3)
"""What an expert costs: it counts in a text, it runs somebody's function, it runs a network."""


class Expert(Protocol):
    """An energy E_i of sequences and their texts.

    Attributes:
        name: as the user wrote it, without the weight.
        cost: COUNTING, FUNCTION or NETWORK; cheap ones are asked first.
        bounded: whether E_i ≥ 0, so that what is known already may reject before this expert is asked.
        repels: whether a negative weight makes sense: the opposite of what a positive one asks for.
    """

    cost: ClassVar[int]
    bounded: ClassVar[bool]
    repels: ClassVar[bool]

    @property
    def name(self) -> str: ...

    def energy(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        """[C] float64, in nats; +inf forbids a text. Raises `InputError` for NaN."""
        ...
