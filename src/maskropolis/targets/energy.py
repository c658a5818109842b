"""The two energies of a masked language model.

    E_raw(x)  = -Σ_{t∈F} f_t(x_∖t)[x_t]              unnormalised logits
    E_norm(x) = -Σ_{t∈F} log p_t(x_t | x_∖t)         minus the pseudo-log-likelihood

F are the free positions, f_t the logits at t when t alone holds the mask token, p_t their softmax over the model's full
vocabulary. Goyal, Dyer & Berg-Kirkpatrick (2022), section 3; Salazar et al. (2020) for the second as a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from maskropolis.errors import unknown_name
from maskropolis.models.forward.rows import Rows, batches, single_mask_rows
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import Conditionals


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an energy says of C sequences.

    Attributes:
        energy: [C] float64.
        terms: [C, T] float64, the share of each free position; 0 elsewhere; sums to the energy.
        conditionals: the masked conditionals met on the way, if they were to be kept.
        rows: model rows that it cost.
    """

    energy: Tensor
    terms: Tensor
    conditionals: Conditionals | None = None
    rows: int = 0


@dataclass(frozen=True, eq=False)
class Known:
    """A masked conditional that is known already: chain c at `positions[c]` has `logits[c]`; [C] and [C, V]."""

    positions: Tensor
    logits: Tensor


class Energy(Protocol):
    """A target π_τ(x) ∝ exp(−E(x)/τ) over the free positions, on the allowed vocabulary."""

    @property
    def name(self) -> str: ...

    def evaluate(
        self, model: MaskedLM, sequences: Sequences, *, keep: bool = False, known: Known | None = None
    ) -> Evaluation:
        """Energy of each row. `keep` asks for the conditionals; `known` spares one row a chain.

        Raises `NumericalError` with the chains whose logits are NaN or infinite.
        """
        ...


@dataclass(frozen=True)
class MaskedEnergy:
    """Raw or norm energy, n rows a sequence (n − 1 with `known`)."""

    name: str
    normalised: bool

    def term(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """[N] float64, the share of one position from its masked conditional: logits [N, V], tokens [N].

        −log p is ≥ 0; the clamp keeps it so where float32 rounds.
        """
        at = logits.gather(1, tokens[:, None])[:, 0].double()
        return (logits.logsumexp(-1).double() - at).clamp(min=0) if self.normalised else -at

    def evaluate(
        self, model: MaskedLM, sequences: Sequences, *, keep: bool = False, known: Known | None = None
    ) -> Evaluation:
        """See `Energy.evaluate`. Works through the rows batch by batch; without `keep` no [C, n, V] is ever held."""
        tally = Tally(self, sequences, keep, known)
        rows = single_mask_rows(sequences, ~tally.todo)
        tally.ask(model, rows.chain, rows.asked[:, 0])
        return tally.evaluation()


class Tally:
    """An evaluation of a masked energy under way: takes masked conditionals one by one, in any order.

    Attributes:
        terms: [C, T] float64 so far.
        todo: [C, T] bool, the free positions whose terms are still to come.
    """

    def __init__(self, energy: MaskedEnergy, sequences: Sequences, keep: bool, known: Known | None = None) -> None:
        self._energy, self._sequences, self._keep = energy, sequences, keep
        self._kept: Conditionals | None = None
        self._rows = 0
        self.terms = torch.zeros(sequences.tokens.shape, dtype=torch.float64, device=sequences.device)
        self.todo = sequences.free.clone()
        if known is not None:
            self._put(torch.arange(len(sequences), device=sequences.device), known.positions, known.logits)

    def ask(self, model: MaskedLM, chain: Tensor, position: Tensor) -> None:
        """The masked conditionals of chains [N] at positions [N] from the model, batch by batch."""
        for index, logits in batches(model, self._sequences, Rows(chain, position[:, None], position[:, None])):
            self.add(chain[index], position[index], logits[:, 0])

    def add(self, chain: Tensor, position: Tensor, logits: Tensor) -> None:
        """Masked conditionals [N, V] of chains [N] at positions [N], one model row each."""
        self._rows += len(chain)
        self._put(chain, position, logits)

    def _put(self, chain: Tensor, position: Tensor, logits: Tensor) -> None:
        self.todo[chain, position] = False
        self.terms[chain, position] = self._energy.term(logits, self._sequences.tokens[chain, position])
        if self._keep:
            if self._kept is None:
                self._kept = Conditionals.empty(self._sequences, logits.shape[-1], logits.dtype)
            self._kept.logits[chain, self._kept.slot[chain, position]] = logits

    def part(self, index: Tensor) -> Tally:
        """The chains `index` [K], as a tally of its own that has cost nothing yet."""
        some = Tally(self._energy, self._sequences.rows(index), self._keep)
        some.terms, some.todo = self.terms[index], self.todo[index]
        some._kept = None if self._kept is None else self._kept.rows(index)
        return some

    def evaluation(self) -> Evaluation:
        return Evaluation(self.terms.sum(1), self.terms, self._kept, self._rows)


RAW = MaskedEnergy("raw", normalised=False)
NORM = MaskedEnergy("norm", normalised=True)
ENERGIES: dict[str, MaskedEnergy] = {"raw": RAW, "norm": NORM}


def energy_by_name(name: str) -> MaskedEnergy:
    """`raw` or `norm`. Raises `InputError` with the nearest name."""
    if name not in ENERGIES:
        raise unknown_name("energy", name, ENERGIES)
    return ENERGIES[name]


def conditionals_at(model: MaskedLM, sequences: Sequences, positions: Tensor) -> Tensor:
    """Logits [C, V] of chain c with `positions[c]` alone masked: one row a chain."""
    return block_conditionals(model, sequences, positions[:, None])[:, 0]


def block_conditionals(model: MaskedLM, sequences: Sequences, positions: Tensor) -> Tensor:
    """Logits [C, K, V] at `positions` [C, K] with all K masked at once: one row a chain."""
    rows = Rows(torch.arange(len(sequences), device=sequences.device), positions, positions)
    out: Tensor | None = None
    for index, logits in batches(model, sequences, rows):
        if out is None:
            out = torch.empty(*positions.shape, logits.shape[-1], dtype=logits.dtype, device=logits.device)
        out[index] = logits
    if out is None:
        return torch.empty(*positions.shape, model.vocabulary_size, device=sequences.device)
    return out
