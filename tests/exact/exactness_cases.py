"""Every registered kernel in all its variants, as cases for the exactness tests. A new kernel must be added here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from maskropolis.kernels import KERNELS, Kernel
from maskropolis.kernels.proposal import MaskedProposal
from maskropolis.models.tabular import TabularMaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import ENERGIES
from maskropolis.targets.enumeration import all_states

torch.set_num_threads(1)

WARM = MaskedProposal(temperature=1.7)
TOP = MaskedProposal(top_k=2)
BOTH = MaskedProposal(temperature=0.6, top_k=2)


@dataclass(frozen=True)
class Variant:
    """Settings of one kernel; `reversible` ones obey detailed balance, the others only leave π invariant."""

    kernel: str
    settings: dict[str, Any]
    reversible: bool = True

    def build(self, energy: str) -> Kernel:
        return KERNELS[self.kernel](energy=ENERGIES[energy], **self.settings)

    def __str__(self) -> str:
        return f"{self.kernel}-" + "-".join(f"{key}={value}" for key, value in self.settings.items())


VARIANTS = [
    Variant("single-site", {}),
    Variant("single-site", {"proposal": WARM}),
    Variant("single-site", {"proposal": TOP}),
    Variant("single-site", {"proposal": BOTH}),
    Variant("single-site", {"keep_conditionals": False}),
    Variant("single-site", {"reuse_row": False}),
    Variant("single-site", {"scan": "left-to-right"}, reversible=False),
    Variant("single-site", {"scan": "right-to-left"}, reversible=False),
    Variant("single-site", {"scan": "back-and-forth"}, reversible=False),
    Variant("block", {}),
    Variant("block", {"k": 1}),
    Variant("block", {"k": 3, "proposal": BOTH}),
    Variant("block", {"k": 9}),
    Variant("block", {"contiguous": True}),
    Variant("block", {"contiguous": True, "k": 9, "proposal": WARM}),
    Variant("gibbs", {}),
    Variant("gibbs", {"scan": "left-to-right"}),
]


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


def exact_variants() -> Iterator[Variant]:
    return (variant for variant in VARIANTS if KERNELS[variant.kernel].exact)
