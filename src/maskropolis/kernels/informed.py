"""Locally balanced proposals over all (position, token) pairs.

    Q(t, w | x) = g(r) / Z(x),    r = q_t(w) / q_t(x_t),    q_t = softmax(f_t(x_∖t) / τ_q),    g(r) = √r or r / (1 + r)
    accept with min(1, exp(−(E(x') − E(x)) / τ) · Q(t, x_t | x') / Q(t, w | x))

Both g have g(r) = r g(1/r). The conditionals of x are at hand, and those of x' come with E(x'); so Z(x) and Z(x') cost
no model row. Zanella (2020), Informed proposals for local MCMC in discrete spaces, JASA 115, 852.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.errors import unknown_name
from maskropolis.kernels.base import Info, State, chains_named, describe, register, taken
from maskropolis.kernels.proposal import MaskedProposal, at
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import accept, draw
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import fits, free_in_order
from maskropolis.targets.energy import NORM, Energy, Evaluation, Known, conditionals_at
from maskropolis.targets.steered import allowed_at

BALANCING = ("sqrt", "barker")


@register("informed", exact=True)
@dataclass(frozen=True)
class Informed:
    """n−1 model rows a chain and step. Pairs whose token, or whose way back, is outside the support of q have weight 0.

    `balancing` is g: `sqrt` for √r, `barker` for r/(1+r). The position is drawn from the sums of the weights, then the
    token at it. Only these sums are kept where the conditionals exceed the memory budget, and one row is computed anew.
    """

    variants: ClassVar[tuple[str, ...]] = ("informed:balancing=sqrt", "informed:top_k=2,proposal_temperature=1.7")
    energy: Energy = NORM
    proposal: MaskedProposal = MaskedProposal()
    balancing: str = "barker"

    def __post_init__(self) -> None:
        if self.balancing not in BALANCING:
            raise unknown_name("balancing function", self.balancing, BALANCING)

    @property
    def uniforms_per_step(self) -> int:
        return 3  # position, token, acceptance

    @property
    def _memory(self) -> str:
        return f"weights {self.balancing} {self.proposal.signature()}"

    def steps_per_sweep(self, free: int) -> int:
        return free

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        evaluation, weights = self._evaluate(model, sequences, fits(model, sequences))
        return State(sequences, evaluation, memory={self._memory: weights})

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, 3]."""
        assert state.evaluation is not None
        x, kept = state.sequences, state.evaluation.conditionals
        weights, rows = self._weights(model, state)
        stuck = weights.amax(1) == -torch.inf
        t = draw(torch.where(stuck[:, None], x.free.double().log(), weights), uniforms[:, 0])
        logits = conditionals_at(model, x, t) if kept is None else kept.at(t)
        rows += len(x) if kept is None else 0
        old = x.tokens_at(t)
        allowed = allowed_at(self.energy, model, x, t).expand(len(x), -1)
        pairs = self._pairs(logits, old, allowed)
        here = torch.zeros_like(pairs).scatter(1, old[:, None], 1.0).log()
        new = draw(torch.where(stuck[:, None], here, pairs), uniforms[:, 1])

        proposed, index = x.with_tokens(t, new), (~stuck).nonzero()[:, 0]
        log_ratio = torch.zeros_like(state.energy)
        if len(index):
            with chains_named(index):
                evaluation, weights_back = self._evaluate(
                    model, proposed.rows(index), kept is not None, Known(t[index], logits[index])
                )
            forth = at(pairs, new)[index] - weights[index].logsumexp(1)
            back = at(self._pairs(logits[index], new[index], allowed[index]), old[index]) - weights_back.logsumexp(1)
            tau = temperature[index] if isinstance(temperature, Tensor) else temperature
            log_ratio[index] = (state.energy[index] - evaluation.energy) / tau + back - forth
            rows += evaluation.rows
        accepted = accept(log_ratio, uniforms[:, 2])
        moved = replace(state, step=state.step + 1, memory={**state.memory, self._memory: weights})
        if len(index):
            yes = accepted[index]
            moved = taken(moved, proposed, index, evaluation, yes)
            moved.memory[self._memory][index[yes]] = weights_back[yes]
        return moved, Info(accepted, log_ratio, t[:, None], x.changes(moved.sequences), rows)

    def _pairs(self, logits: Tensor, tokens: Tensor, allowed: Tensor) -> Tensor:
        """log g(q(w) / q(token)) [N, V] float64 of all moves away from `tokens` [N]; `logits` [N, V]."""
        log_q = self.proposal.log_prob(logits, allowed)
        log_r = log_q - at(log_q, tokens)[:, None]
        log_g = log_r / 2 if self.balancing == "sqrt" else torch.nn.functional.logsigmoid(log_r)
        impossible = (log_q == -torch.inf) | (at(log_q, tokens) == -torch.inf)[:, None]
        return log_g.masked_fill(impossible, -torch.inf).scatter(1, tokens[:, None], -torch.inf)

    def _evaluate(
        self, model: MaskedLM, sequences: Sequences, keep: bool, known: Known | None = None
    ) -> tuple[Evaluation, Tensor]:
        """E and, for each position, the log of the summed weights of its moves [C, T]; −inf where there is none.

        Without `keep`, in portions of chains whose conditionals stay within the memory budget.
        """
        every = torch.arange(len(sequences), device=sequences.device)
        parts, evaluations, weights = [every] if keep else every.split(_portion(model, sequences)), [], []
        for part in parts:
            of_part = None if known is None else Known(known.positions[part], known.logits[part])
            some = sequences.rows(part)
            with chains_named(part):
                evaluations.append(self.energy.evaluate(model, some, keep=True, known=of_part))
            weights.append(self._sums(model, some, evaluations[-1]))
        if keep:
            return evaluations[0], weights[0]
        energy, terms = torch.cat([e.energy for e in evaluations]), torch.cat([e.terms for e in evaluations])
        return Evaluation(energy, terms, None, sum(e.rows for e in evaluations)), torch.cat(weights)

    def _sums(self, model: MaskedLM, sequences: Sequences, evaluation: Evaluation) -> Tensor:
        assert evaluation.conditionals is not None
        sums = torch.full(sequences.tokens.shape, -torch.inf, dtype=torch.float64, device=sequences.device)
        for t in free_in_order(sequences).T:
            allowed = allowed_at(self.energy, model, sequences, t)
            pairs = self._pairs(evaluation.conditionals.at(t), sequences.tokens_at(t), allowed)
            sums.scatter_(1, t[:, None], pairs.logsumexp(1, keepdim=True))
        return sums.masked_fill(~sequences.free, -torch.inf)

    def _weights(self, model: MaskedLM, state: State) -> tuple[Tensor, int]:
        """The sums of x, computed anew for chains that another kernel has moved; and the model rows that it cost."""
        weights = state.memory[self._memory].clone()
        index = weights.isnan().any(1).nonzero()[:, 0]
        if not len(index):
            return weights, 0
        assert state.evaluation is not None
        moved = state.rows(index)
        assert moved.evaluation is not None
        if moved.evaluation.conditionals is not None:
            weights[index] = self._sums(model, moved.sequences, moved.evaluation)
            return weights, 0
        with chains_named(index):
            evaluation, weights[index] = self._evaluate(model, moved.sequences, keep=False)
        return weights, evaluation.rows

    def signature(self) -> str:
        return describe(self)


def _portion(model: MaskedLM, sequences: Sequences) -> int:
    each = 4 * max(1, int(sequences.free_counts.max())) * model.vocabulary_size
    return max(1, model.budget.conditionals // each)
