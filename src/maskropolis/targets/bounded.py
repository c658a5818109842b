"""Energies that stop early: E_norm is a sum of terms ≥ 0, so its running sum bounds it from below.

A proposal is rejected as soon as the running sum of E(x') exceeds B = E(x) + τ(log q_rev − log q_fwd − log u): the same
decision as from the whole sum. The raw energy has no such bound: its terms −f_t are minus unnormalised logits, which
nothing but the size of the network limits, so a term not yet seen could always turn the decision.

Experts (`maskropolis.targets.steered`) are asked before the model: where what they say decides, it is not asked at all.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import Energy, Evaluation, Known, MaskedEnergy, Tally
from maskropolis.targets.steered import SteeredEnergy

Stop = Callable[[Tensor, Tensor], Tensor]
"""(chains [K] int64, their running sums [K]) -> [K] bool: which evaluations can end."""


def is_bounded(energy: Energy) -> bool:
    """Whether every term of the masked language model is ≥ 0."""
    masked = energy.masked if isinstance(energy, SteeredEnergy) else energy
    return isinstance(masked, MaskedEnergy) and masked.normalised


def evaluate_bounded(
    model: MaskedLM,
    energy: Energy,
    sequences: Sequences,
    priority: Tensor,
    stop: Stop,
    *,
    keep: bool = False,
    known: Known | None = None,
) -> Evaluation:
    """`energy.evaluate`, but chains leave as soon as `stop` says so; their energy is then the running sum.

    `priority` [C, T]: positions of large priority are evaluated first. In every round each chain that is left gives so
    many of its next positions that forward passes stay well filled while chains drop out.
    """
    masked, _ = divided(energy)
    return finish(model, energy, sequences, Tally(masked, sequences, keep, known), priority, stop)


def finish(
    model: MaskedLM, energy: Energy, sequences: Sequences, tally: Tally, priority: Tensor, stop: Stop
) -> Evaluation:
    """`evaluate_bounded` with a tally of E_MLM that has some terms already; its rows are counted in."""
    _, steered = divided(energy)
    offset = torch.zeros_like(tally.terms[:, 0]) if steered is None else steered.offset(sequences, stop)
    order = torch.where(tally.todo, priority, -torch.inf).argsort(dim=1, descending=True, stable=True)
    counts, done = tally.todo.sum(1), 0
    every = torch.arange(len(sequences), device=sequences.device)
    live = _undecided(every, counts, tally, offset, stop, done)
    while len(live):
        each = max(1, _round(model, sequences) // len(live))
        ranks = torch.arange(done, done + each, device=live.device)
        which, rank = (ranks[None, :] < counts[live, None]).nonzero(as_tuple=True)
        chain, position = live[which], order[live[which], ranks[rank]]
        tally.ask(model, chain, position)
        done += each
        live = _undecided(live, counts, tally, offset, stop, done)
    found = tally.evaluation()
    return Evaluation(found.energy + offset, found.terms, found.conditionals, found.rows)


def divided(energy: Energy) -> tuple[MaskedEnergy, SteeredEnergy | None]:
    """The energy of the model, and the whole if experts and constraints add to it (lower bounds if stopped early)."""
    if isinstance(energy, SteeredEnergy):
        return energy.masked, energy
    assert isinstance(energy, MaskedEnergy)
    return energy, None


def _undecided(live: Tensor, counts: Tensor, tally: Tally, offset: Tensor, stop: Stop, done: int) -> Tensor:
    live = live[counts[live] > done]
    return live[~stop(live, offset[live] + tally.terms[live].sum(1))]


def _round(model: MaskedLM, sequences: Sequences) -> int:
    """Rows in one round: half of what a forward pass may hold. Smaller rounds decide sooner, and lose more than that by
    what a row costs in them."""
    return max(1, model.budget.tokens // (2 * max(1, sequences.width)))


def promising_order(before: Sequences, proposed: Sequences, terms: Tensor) -> Tensor:
    """[C, T] priorities that let the running sum grow fast: the terms of x, raised near the tokens that changed.

    `terms` [C, T] are those of `before`.
    """
    return terms
