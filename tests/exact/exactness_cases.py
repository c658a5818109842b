"""Every registered kernel in all its variants, as cases for the exactness tests. A new kernel must be added here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from maskropolis.kernels import KERNELS, Kernel
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.proof.certificate import specifications
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import ENERGIES
from maskropolis.targets.enumeration import all_states

torch.set_num_threads(1)


@dataclass(frozen=True)
class Variant:
    """A kernel with settings, by its specification."""

    specification: str

    @property
    def kernel(self) -> str:
        return self.specification.partition(":")[0]

    @property
    def exact(self) -> bool:
        return bool(KERNELS[self.kernel].exact)

    @property
    def reversible(self) -> bool:
        """Whether it obeys detailed balance; what goes by the step number only leaves π invariant."""
        by_step = ("scan=", "by-step", "tempering")
        return not any(word in self.specification for word in by_step)

    def build(self, energy: str, **settings: Any) -> Kernel:
        return build_kernel(self.specification, ENERGIES[energy], **settings)

    def __str__(self) -> str:
        return self.specification


MORE = [
    "single-site:proposal_temperature=0.6,top_k=2",
    "single-site:keep_conditionals=no",
    "single-site:reuse_row=no",
    "single-site:early_rejection=no",
    "block:k=1",
    "block:k=9",
    "block:k=9,contiguous=yes,proposal_temperature=1.7",
    "path:k=1",
    "path:k=2,contiguous=yes,proposal_temperature=1.7",
    "informed:balancing=sqrt,top_k=2",
    "delayed:kernel=path(k=2,contiguous=yes,top_k=2),scale=0.5",
    "delayed:kernel=single-site(scan=left-to-right),surrogate=grouped/1",
    "delayed:surrogate=grouped/9",
    "mixture:informed=1,block(k=9,top_k=2)=0.5,delayed=2",
]
VARIANTS = [Variant(specification) for specification in dict.fromkeys([*specifications(), *MORE])]
ONE_SPACE = [variant for variant in VARIANTS if not hasattr(KERNELS[variant.kernel], "enumerate")]
"""Kernels whose state is one sequence of fixed length a chain."""


@dataclass(frozen=True)
class Situation:
    """A model, which positions are free, and a temperature."""

    name: str
    free: tuple[bool, ...]
    temperature: float = 1.0
    tokens: int = 2

    def model(self) -> TabularMaskedLM:
        return TabularMaskedLM.random(self.tokens, [len(self.free)], seed=len(self.free) + self.tokens, spread=1.5)

    def states(self, model: TabularMaskedLM) -> Sequences:
        free = torch.tensor([self.free])
        template = Sequences(torch.arange(free.shape[1])[None] % self.tokens, free, torch.ones_like(free))
        return all_states(model, template)


SITUATIONS = [
    Situation("all free", (True, True, True)),
    Situation("cold", (True, True, True), temperature=0.6),
    Situation("context", (True, False, True, True), temperature=1.4),
    Situation("three tokens", (False, True, True), tokens=3),
]
