"""The energy of a masked language model with experts added, on a support that hard constraints cut out.

    E(x) = E_MLM(x) + Σ_i α_i E_i(x)   where all constraints hold,   +∞ elsewhere

What is cheap comes first: the constraints, then experts by their cost, the masked language model last. Experts whose
energy may be negative come before those with α_i E_i ≥ 0, so that from there on the running sum bounds E from below
and may reject a proposal early, exactly as within E_norm (`maskropolis.targets.bounded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.errors import NumericalError
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import Conditionals
from maskropolis.targets.constraints import Constraints
from maskropolis.targets.energy import Evaluation, Known, MaskedEnergy
from maskropolis.targets.experts import Expert

NO_CONSTRAINTS = Constraints()
Decode = Callable[[Sequences], list[str]]
Decided = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class SteeredEnergy:
    """`masked` plus the `experts`, pairs of a weight α and an expert; `decode` gives the text that experts see.

    `terms` of an evaluation are those of `masked`; the energy is their sum plus what the experts say.
    """

    masked: MaskedEnergy
    decode: Decode
    experts: tuple[tuple[float, Expert], ...] = ()
    constraints: Constraints = NO_CONSTRAINTS

    @property
    def name(self) -> str:
        """E.g. `norm+keyword:sea:5;require:storm`."""
        experts = "".join(f"+{expert.name}:{weight:g}" for weight, expert in self.experts)
        return self.masked.name + experts + "".join(f";{name}" for name in self.constraints.names)

    def evaluate(
        self, model: MaskedLM, sequences: Sequences, *, keep: bool = False, known: Known | None = None
    ) -> Evaluation:
        """See `Energy.evaluate`. The model is not asked about sequences whose energy is infinite."""
        offset = self.offset(sequences)
        finite = offset < torch.inf
        if bool(finite.all()):
            found = self.masked.evaluate(model, sequences, keep=keep, known=known)
            return Evaluation(found.energy + offset, found.terms, found.conditionals, found.rows)
        terms = torch.zeros(sequences.tokens.shape, dtype=torch.float64, device=sequences.device)
        kept = Conditionals.empty(sequences, model.vocabulary_size, torch.float32) if keep else None
        index, rows = finite.nonzero()[:, 0], 0
        if len(index):
            part = None if known is None else Known(known.positions[index], known.logits[index])
            with _named(index):
                found = self.masked.evaluate(model, sequences.rows(index), keep=keep, known=part)
            terms[index], rows = found.terms, found.rows
            if found.conditionals is not None:
                kept = Conditionals.empty(sequences, model.vocabulary_size, found.conditionals.logits.dtype)
                kept = kept.replaced(index, found.conditionals)
        return Evaluation(offset + terms.sum(1), terms, kept, rows)

    def offset(self, sequences: Sequences, decided: Decided | None = None) -> Tensor:
        """[C] float64: what constraints and experts add; +inf outside the support.

        `decided(chains [K], lower bounds [K])` says which chains need not be asked further; what they get is then a
        lower bound.
        """
        total = torch.zeros(len(sequences), dtype=torch.float64, device=sequences.device)
        if not len(sequences):
            return total
        texts = self.decode(sequences) if self.experts or self.constraints.of_text else []
        total[~self.constraints.hold(sequences, texts)] = torch.inf
        live = (total < torch.inf).nonzero()[:, 0]
        ordered = sorted(self.experts, key=lambda pair: (_bounded(pair), pair[1].cost))
        for number, (weight, expert) in enumerate(ordered):
            if decided is not None and _bounded(ordered[number]):
                live = live[~decided(live, total[live])]
            if weight == 0 or not len(live):
                continue
            with _named(live):
                said = expert.energy(sequences.rows(live), [texts[i] for i in live.tolist()])
            total[live] += weight * said
            live = live[total[live] < torch.inf]
        return total


def steering(energy: object) -> SteeredEnergy | None:
    """The energy itself if it is a steered one."""
    return energy if isinstance(energy, SteeredEnergy) else None


def allowed_at(energy: object, model: MaskedLM, sequences: Sequences, positions: Tensor, alone: bool = False) -> Tensor:
    """[V], or [C, V] where the target has constraints: tokens that may stand at `positions` [C] given all others.

    It does not depend on the token that stands there now, so a proposal restricted to it is renormalised alike in both
    directions. With `alone`, by constraints that look at one position only: for proposals that draw several at once.
    """
    steered = steering(energy)
    if steered is None or not len(steered.constraints):
        return model.allowed
    return steered.constraints.allowed(model.allowed, sequences, positions, alone)


def supported(energy: object, sequences: Sequences) -> Tensor:
    """[C] bool, whether the constraints of the target, if it has any, hold."""
    steered = steering(energy)
    if steered is None or not len(steered.constraints):
        return torch.ones(len(sequences), dtype=torch.bool, device=sequences.device)
    texts = steered.decode(sequences) if steered.constraints.of_text else []
    return steered.constraints.hold(sequences, texts)


def _bounded(pair: tuple[float, Expert]) -> bool:
    """Whether α E ≥ 0 whatever the text."""
    weight, expert = pair
    return expert.bounded and weight >= 0


@contextmanager
def _named(index: Tensor) -> Iterator[None]:
    """Within the context only the chains `index` [K] are at work; an error names them by their place in the batch."""
    try:
        yield
    except NumericalError as error:
        raise NumericalError(error.plain, index[list(error.chains)].tolist()) from None
