"""Validity of SMILES and reaction SMILES by RDKit, an extra: `pip install 'maskropolis[chem]'`.

    E = number of molecules that RDKit cannot read or sanitise; 0 exactly if every side of the reaction is valid

Landrum et al., RDKit: open-source cheminformatics, rdkit.org.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.sequences import Sequences
from maskropolis.targets.experts import FUNCTION


@dataclass(frozen=True)
class SmilesValidity:
    """`reads(smiles)` is whether a side of a reaction is valid. A side without a molecule counts as one that is not,
    and so does every `>` too many or too few; agents, between the two of them, may be missing."""

    cost: ClassVar[int] = FUNCTION
    bounded: ClassVar[bool] = True
    repels: ClassVar[bool] = False
    name: ClassVar[str] = "smiles-validity"
    reads: Callable[[str], bool] = field(repr=False)

    @classmethod
    def load(cls) -> SmilesValidity:
        """Raises `InputError` where RDKit is not installed."""
        try:
            chemistry, base = importlib.import_module("rdkit.Chem"), importlib.import_module("rdkit.rdBase")
        except ImportError:
            raise InputError(
                "the expert 'smiles-validity' needs RDKit, which is not installed; pip install 'maskropolis[chem]'"
            ) from None
        return cls(lambda smiles: _sanitises(chemistry, base, smiles))

    def energy(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        invalid = [self.invalid(text) for text in texts]
        return torch.tensor(invalid, dtype=torch.float64, device=sequences.device)

    def invalid(self, text: str) -> int:
        """Number of invalid molecules in a SMILES, or in a reaction `reactants>agents>products`."""
        sides = text.split(">")
        if len(sides) == 1:
            return self._invalid_side(text)
        reactants, *agents, products = sides
        needed = [reactants, products] + [side for side in agents if side]
        return sum(map(self._invalid_side, needed)) + abs(len(agents) - 1)

    def _invalid_side(self, side: str) -> int:
        """Molecules may share ring bonds across a dot, so that a side is read whole first."""
        if side and not any(map(str.isspace, side)) and self.reads(side):  # what follows a space is a name to RDKit
            return 0
        return max(1, sum(not (molecule and self.reads(molecule)) for molecule in side.split(".")))


def _sanitises(chemistry: Any, base: Any, smiles: str) -> bool:
    with base.BlockLogs():
        return chemistry.MolFromSmiles(smiles) is not None
