"""Cheap stand-ins for an energy, for the first stage of delayed acceptance. They steer; the target stays exact.

unmasked   S(x) = −Σ_{t∈F} log p_t(x_t | x)              1 row: every token is visible, also the one that is scored
grouped    S(x) = −Σ_{t∈F} log p_t(x_t | x_∖G(t))        g rows: every g-th free position is masked at once
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.errors import InputError, unknown_name
from maskropolis.models.forward.rows import Rows, batches
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import free_in_order
from maskropolis.targets.energy import NORM, Energy, Evaluation, Known


@dataclass(frozen=True)
class Surrogate:
    """`groups` rows a sequence, each scoring its share of the free positions; 0 stands for one row with no mask."""

    groups: int = 0

    def __post_init__(self) -> None:
        if self.groups < 0:
            raise InputError(f"{self.groups} groups are out of range; expected at least 1")

    @property
    def name(self) -> str:
        return f"grouped/{self.groups}" if self.groups else "unmasked"

    def signature(self) -> str:
        return self.name

    def evaluate(
        self, model: MaskedLM, sequences: Sequences, *, keep: bool = False, known: Known | None = None
    ) -> Evaluation:
        """As `Energy.evaluate`; there are no single-mask conditionals to keep or to know."""
        terms = torch.zeros(sequences.tokens.shape, dtype=torch.float64, device=sequences.device)
        rows = 0
        for group in range(max(1, self.groups)):
            for part in _parts(model, sequences):
                asked, counts = self._group(sequences.rows(part), group)
                some = Rows(part[counts], asked if self.groups else asked[:, :0], asked)
                for index, logits in batches(model, sequences, some):
                    chain, positions = some.chain[index, None], asked[index]
                    found = NORM.term(logits.flatten(0, 1), sequences.tokens[chain, positions].flatten())
                    terms[chain, positions] = found.view(positions.shape)
                rows += len(some)
        return Evaluation(terms.sum(1), terms, None, rows)

    def _group(self, sequences: Sequences, group: int) -> tuple[Tensor, Tensor]:
        """Positions [N, K] of the chains that have some in this group (a repeated one fills up), and which [C] do."""
        order, free = free_in_order(sequences), sequences.free_counts
        step = max(1, self.groups)
        order = order[:, group::step]
        real = torch.arange(group, group + step * order.shape[1], step, device=order.device) < free[:, None]
        some = real.any(1) if real.shape[1] else torch.zeros_like(free, dtype=torch.bool)
        return torch.where(real, order, order[:, :1])[some], some


def _parts(model: MaskedLM, sequences: Sequences) -> list[Tensor]:
    """The chains in portions whose logits at all free positions are no more than those of one full forward pass."""
    most = max(1, int(sequences.free_counts.max()))
    size = max(1, model.budget.tokens // (sequences.width * most)) if len(sequences) else 1
    return list(torch.arange(len(sequences), device=sequences.device).split(size))


@dataclass(frozen=True)
class OtherModel:
    """An energy under another masked LM with the same vocabulary, say a smaller one, whatever model it is given."""

    model: MaskedLM
    energy: Energy = NORM

    @property
    def name(self) -> str:
        return f"{self.energy.name} of {self.model.name}"

    def signature(self) -> str:
        return self.name

    def evaluate(
        self, model: MaskedLM, sequences: Sequences, *, keep: bool = False, known: Known | None = None
    ) -> Evaluation:
        """As `Energy.evaluate`. Raises `InputError` if the vocabularies differ in size."""
        if model.vocabulary_size != self.model.vocabulary_size:
            raise InputError(
                f"the surrogate '{self.model.name}' has {self.model.vocabulary_size} tokens and '{model.name}' has "
                f"{model.vocabulary_size}; expected one vocabulary"
            )
        return self.energy.evaluate(self.model, sequences)


UNMASKED = Surrogate()


def surrogate_by_name(name: str) -> Surrogate:
    """`unmasked`, or `grouped/G` for G groups. Raises `InputError` for another name."""
    if name == "unmasked":
        return UNMASKED
    kind, _, count = name.partition("/")
    if kind == "grouped" and (count or "2").isdecimal() and int(count or "2") > 0:
        return Surrogate(int(count or "2"))
    raise unknown_name("surrogate", name, ("unmasked", "grouped/2", "grouped/3", "grouped/4"))
