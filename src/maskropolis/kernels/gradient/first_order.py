"""What the gradient-informed kernels share: the moves that the gradient at x suggests, and the decision.

    weight of putting w at t = exp(-d(t, w) / (2 τ τ_q))

d is the first-order change of E (`maskropolis.targets.gradients`), τ_q the proposal temperature. A move has weight 0 if
its token, or the one that stands there, is not allowed at t or not among the `top_k` likeliest of the masked
conditional there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from maskropolis.kernels.base import Info, State, chains_named, taken
from maskropolis.kernels.proposal import MaskedProposal
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import accept
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import Conditionals, fits, free_in_order
from maskropolis.targets.energy import Energy, Evaluation
from maskropolis.targets.gradients import differences, evaluate_with_slopes
from maskropolis.targets.steered import allowed_at, supported

SLOPES = "slopes"
"""Name in a state's memory of g [C, T, H]."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """C chains with what is known of the energy around them; `temperature` is [C]."""

    model: MaskedLM
    energy: Energy
    proposal: MaskedProposal
    sequences: Sequences
    conditionals: Conditionals
    slopes: Tensor
    temperature: Tensor

    def log_weights(self, positions: Tensor, alone: bool = False) -> Tensor:
        """[C, V] float64, of the moves at `positions` [C]; −inf at the token that stands there.

        `alone`: with the constraints that look at one position only, for moves that change several at once.
        """
        x, old = self.sequences, self.sequences.tokens_at(positions)
        allowed = allowed_at(self.energy, self.model, x, positions, alone).expand(len(x), -1)
        support = self.proposal.log_prob(self.conditionals.at(positions), allowed) > -torch.inf
        d = differences(self.model, x, self.conditionals, self.slopes, positions)
        weights = -d / (2 * self.proposal.temperature * self.temperature[:, None])
        possible = support & support.gather(1, old[:, None]) & x.free.gather(1, positions[:, None])
        return weights.masked_fill(~possible, -torch.inf).scatter(1, old[:, None], -torch.inf)

    def sums(self) -> Tensor:
        """[C, T] float64, the log of the summed weights at each position; −inf where there is no move."""
        shape = self.sequences.tokens.shape
        sums = torch.full(shape, -torch.inf, dtype=torch.float64, device=self.sequences.device)
        for t in free_in_order(self.sequences).T:
            sums.scatter_(1, t[:, None], self.log_weights(t).logsumexp(1, keepdim=True))
        return sums.masked_fill(~self.sequences.free, -torch.inf)


class Move(NamedTuple):
    """x' as proposed, log q(x'|x) [C] float64, and the positions [C, K] that were drawn anew."""

    sequences: Sequences
    log_q: Tensor
    positions: Tensor


class GradientKernel(Protocol):
    """A kernel with a proposal q(·|x) made of the surroundings of x."""

    @property
    def energy(self) -> Energy: ...

    @property
    def proposal(self) -> MaskedProposal: ...

    def propose_around(self, x: Surroundings, uniforms: Tensor) -> Move: ...

    def log_q_back(self, after: Surroundings, move: Move, before: Sequences) -> Tensor:
        """[C] float64, log q(x|x')."""
        ...


def initial(kernel: GradientKernel, model: MaskedLM, sequences: Sequences) -> State:
    """The state at `sequences`, its conditionals kept where the memory budget allows."""
    keep, parts = fits(model, sequences), []
    for part in _portions(model, sequences, keep):
        with chains_named(part):
            parts.append(evaluate_with_slopes(model, kernel.energy, sequences.rows(part)))
    evaluation = parts[0][0]
    if not keep:
        energy, terms = torch.cat([e.energy for e, _ in parts]), torch.cat([e.terms for e, _ in parts])
        evaluation = Evaluation(energy, terms, None, sum(e.rows for e, _ in parts))
    return State(sequences, evaluation, memory={SLOPES: torch.cat([slopes for _, slopes in parts])})


def step_by_gradient(
    kernel: GradientKernel, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor
) -> tuple[State, Info]:
    """One step of all chains: 3n model rows for x' with its gradient, which serves the next step if x' is accepted.

    Where the conditionals of all chains exceed the memory budget, chains are moved in portions and the conditionals of
    x are computed anew, n rows more.
    """
    assert state.evaluation is not None
    tau = temperature if isinstance(temperature, Tensor) else torch.full_like(state.energy, temperature)
    state, rows = _with_slopes(kernel, model, state)
    if state.evaluation is not None and state.evaluation.conditionals is not None:
        after, info = _move(kernel, model, state, tau, uniforms)
        return replace(after, step=state.step + 1), info._replace(rows=info.rows + rows)
    after, infos = state, []
    for part in _portions(model, state.sequences, False):
        with chains_named(part):
            some, again = _with_conditionals(kernel, model, state.rows(part))
            moved, info = _move(kernel, model, some, tau[part], uniforms[part])
        after, rows = after.merged(part, moved), rows + again + info.rows
        infos.append(info)
    return replace(after, step=state.step + 1), _joined(infos, rows)


def _joined(infos: Sequence[Info], rows: int) -> Info:
    """One `Info` of chains in the order of the portions; fewer positions are filled up with the first."""
    width = max(info.positions.shape[1] for info in infos)
    wide = [
        torch.cat([info.positions, info.positions[:, :1].expand(-1, width - info.positions.shape[1])], 1)
        for info in infos
    ]
    return Info(
        torch.cat([info.accepted for info in infos]),
        torch.cat([info.log_ratio for info in infos]),
        torch.cat(wide),
        torch.cat([info.changed for info in infos]),
        rows,
    )


def _move(kernel: GradientKernel, model: MaskedLM, state: State, tau: Tensor, uniforms: Tensor) -> tuple[State, Info]:
    assert state.evaluation is not None and state.evaluation.conditionals is not None
    x, slopes, rows = state.sequences, state.memory[SLOPES].clone(), 0
    here = Surroundings(model, kernel.energy, kernel.proposal, x, state.evaluation.conditionals, slopes, tau)
    move = kernel.propose_around(here, uniforms)
    moved = (move.sequences.tokens != x.tokens).any(1)
    log_ratio = torch.where(moved, -torch.inf, 0.0).double()
    index = (moved & supported(kernel.energy, move.sequences)).nonzero()[:, 0]
    if len(index):
        some = Move(move.sequences.rows(index), move.log_q[index], move.positions[index])
        with chains_named(index):
            evaluation, slopes_there = evaluate_with_slopes(model, kernel.energy, some.sequences)
        assert evaluation.conditionals is not None
        there = replace(
            here,
            sequences=some.sequences,
            conditionals=evaluation.conditionals,
            slopes=slopes_there,
            temperature=tau[index],
        )
        back = kernel.log_q_back(there, some, x.rows(index))
        gain = (state.energy[index] - evaluation.energy) / tau[index] + back - some.log_q
        log_ratio[index] = torch.where(evaluation.energy < torch.inf, gain, -torch.inf)
        rows = evaluation.rows
    accepted = accept(log_ratio, uniforms[:, -1])
    after = replace(state, memory={**state.memory, SLOPES: slopes})
    if len(index):
        yes = accepted[index]
        after = taken(after, move.sequences, index, evaluation, yes)
        after.memory[SLOPES][index[yes]] = slopes_there[yes]
    return after, Info(accepted, log_ratio, move.positions, x.changes(after.sequences), rows)


def _with_slopes(kernel: GradientKernel, model: MaskedLM, state: State) -> tuple[State, int]:
    """The state with the slopes of chains that another kernel has moved; and the model rows that it cost."""
    slopes = state.memory[SLOPES]
    index = slopes.isnan().flatten(1).any(1).nonzero()[:, 0]
    if not len(index):
        return state, 0
    slopes, rows = slopes.clone(), 0
    for part in _portions(model, state.sequences.rows(index), False):
        with chains_named(index[part]):
            found, slopes[index[part]] = evaluate_with_slopes(model, kernel.energy, state.sequences.rows(index[part]))
        rows += found.rows
    return replace(state, memory={**state.memory, SLOPES: slopes}), rows


def _with_conditionals(kernel: GradientKernel, model: MaskedLM, state: State) -> tuple[State, int]:
    assert state.evaluation is not None
    found = kernel.energy.evaluate(model, state.sequences, keep=True)
    return replace(state, evaluation=replace(state.evaluation, conditionals=found.conditionals)), found.rows


def _portions(model: MaskedLM, sequences: Sequences, whole: bool) -> tuple[Tensor, ...]:
    """All chains at once, or in portions whose conditionals stay within the memory budget."""
    every = torch.arange(len(sequences), device=sequences.device)
    if whole or not len(sequences):
        return (every,)
    each = 4 * max(1, int(sequences.free_counts.max())) * model.vocabulary_size
    return every.split(max(1, model.budget.conditionals // each))
