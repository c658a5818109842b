"""Metropolis–Hastings across lengths: insert a token, delete one, or replace one.

    π_τ(x) ∝ p(n) exp((c n − E(x)) / τ),    n the number of free tokens of x, p a prior over lengths, c an offset

    insert    a mask at one of n + R slots, then w ~ q(· | all else);   back: delete that one of n + 1 tokens
              accept with min(1, π(x')/π(x) · (n + R) / ((n + 1) q(w)))
    delete    one of n tokens, x_s;                                     back: insert it at that one of n − 1 + R slots
              accept with min(1, π(x')/π(x) · n q(x_s) / (n − 1 + R))
    replace   as the single-site kernel, at the same length

R is the number of runs of free tokens; each keeps at least one token, so that context is never joined. Insertion and
deletion are tried equally often. A slot pairs each insertion with one deletion, so detailed balance holds for each
pair, also where several pairs connect the same two texts. Green (1995), Biometrika 82, 711.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.kernels.base import Info, State, chains_named, describe, register
from maskropolis.kernels.growing import deleted, inserted, run_ends, run_sizes, run_starts, slot_position, widened
from maskropolis.kernels.proposal import MaskedProposal, at
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import accept, draw, pick
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import free_in_order
from maskropolis.targets.energy import NORM, Energy, Evaluation, conditionals_at
from maskropolis.targets.lengths import LengthPrior, all_lengths
from maskropolis.targets.steered import allowed_at

_REPLACE, _INSERT, _DELETE = range(3)


@register("resize", exact=True)
@dataclass(frozen=True)
class Resize:
    """At most n + 2 model rows a chain and step.

    `shortest` and `longest` bound n; longest = 0 stands for twice the length that a chain begins with. `prior` p is
    uniform, poisson (with `mean`) or corpus (the `corpus` is a file of texts' lengths in tokens, one a line). `offset`
    c is what a token may cost: 0 compares energies as they are; the mean cost of a token of real text
    (`targets.lengths.token_offset`) compares them by the token. `resizing` is the share of steps that change n. `gaps`
    bounds each run of free tokens by itself, in order, e.g. `2-4/3-3`; it takes the place of `shortest` and `longest`.

    State: `memory["free"]` [C, T] the free positions as integers, `memory["longest"]` [C] the bound of each chain.
    """

    variants: ClassVar[tuple[str, ...]] = (
        "resize:prior=poisson,mean=1.5,offset=0.7",
        "resize:resizing=0.8,proposal_temperature=1.7,top_k=2",
    )
    energy: Energy = NORM
    proposal: MaskedProposal = MaskedProposal()
    shortest: int = 1
    longest: int = 0
    prior: str = "uniform"
    mean: float = 12.0
    corpus: str = ""
    offset: float = 0.0
    resizing: float = 0.5
    gaps: str = ""

    def __post_init__(self) -> None:
        if self.gaps and (self.shortest != 1 or self.longest):
            raise InputError("gaps bound each run of free tokens; leave shortest and longest away")
        gap_bounds(self.gaps)
        if self.shortest < 1 or self.longest < 0 or 0 < self.longest < self.shortest:
            raise InputError(
                f"lengths {self.shortest} to {self.longest} are out of range; expected 1 ≤ shortest ≤ longest"
            )
        if not 0 < self.resizing <= 1:
            raise InputError(f"resizing {self.resizing} is out of range; expected a share of steps, above 0, at most 1")
        if not math.isfinite(self.offset):
            raise InputError(f"offset {self.offset} is out of range; expected a number of nats a token")
        LengthPrior(self.prior, self.mean, self.corpus)

    @property
    def length_prior(self) -> LengthPrior:
        return LengthPrior(self.prior, self.mean, self.corpus)

    @property
    def uniforms_per_step(self) -> int:
        return 4  # move, place, token, acceptance

    def steps_per_sweep(self, free: int) -> int:
        return free

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        """Raises `InputError` for a start whose length is out of bounds or has no probability."""
        count, runs = sequences.free_counts, run_starts(sequences).sum(1)
        longest = torch.full_like(count, self.longest) if self.longest else 2 * count
        if self.gaps:
            self._require_gaps(sequences)
            longest = torch.full_like(count, sum(high for _, high in gap_bounds(self.gaps)))
        if model.max_length is not None:
            longest = torch.minimum(longest, model.max_length - (sequences.lengths - count))
        wrong = (count < runs.clamp(min=self.shortest)) | (count > longest)
        wrong |= self.length_prior.log_prob(count) == -torch.inf
        if bool(wrong.any()):
            chain = int(wrong.nonzero()[0, 0])
            raise InputError(
                f"chain {chain} begins with {int(count[chain])} free tokens, which the kernel '{self.signature()}' "
                f"does not allow (at most {int(longest[chain])}); begin with another length, or set its bounds"
            )
        return self._state(model, widened(sequences, int((longest - count).max())), longest)

    def _require_gaps(self, sequences: Sequences) -> None:
        """Raises `InputError` for a chain whose runs are not those that `gaps` bounds."""
        bounds, sizes = gap_bounds(self.gaps), run_sizes(sequences)
        for chain, (runs, row) in enumerate(zip(run_starts(sequences).sum(1).tolist(), sizes.tolist(), strict=True)):
            if runs != len(bounds) or any(not low <= n <= high for n, (low, high) in zip(row, bounds, strict=False)):
                raise InputError(
                    f"chain {chain} begins with gaps of {', '.join(map(str, row[:runs]))} tokens, which the bounds "
                    f"{self.gaps} do not allow"
                )

    def _state(self, model: MaskedLM, sequences: Sequences, longest: Tensor) -> State:
        memory = {"free": sequences.free.long(), "longest": longest}
        return State(sequences, self.energy.evaluate(model, sequences), memory=memory)

    def enumerate(self, model: MaskedLM, states: Sequences, temperature: float) -> tuple[State, Tensor]:
        """All states of up to three free tokens and the logarithm of their target; the certificate asks for this."""
        every = all_lengths(model, states.rows(torch.tensor([0])), 3)
        state = self._state(model, every, torch.full_like(every.free_counts, 3))
        return state, self._log_target(every.free_counts, state.energy, temperature)

    def _log_target(self, count: Tensor, energy: Tensor, temperature: float | Tensor) -> Tensor:
        """[C] log p(n) + (c n − E) / τ."""
        return self.length_prior.log_prob(count) + (self.offset * count.double() - energy) / temperature

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, 4]."""
        x, half = state.sequences, self.resizing / 2
        shares = torch.tensor([1 - self.resizing, half, half], dtype=torch.float64, device=uniforms.device)
        move = draw(shares.log().expand(len(x), -1), uniforms[:, 0])
        runs = run_starts(x).sum(1)
        place = pick(x.free_counts + torch.where(move == _INSERT, runs, 0), uniforms[:, 1])
        rank = torch.minimum(place, x.free_counts - 1)
        t = free_in_order(x).gather(1, rank[:, None])[:, 0]
        t = torch.where(move == _INSERT, slot_position(x, place).clamp(max=x.width - 1), t)

        log_ratio = torch.full_like(state.energy, -torch.inf)
        index = self._possible(state, move, t).nonzero()[:, 0]
        proposed, after, rows = x, None, 0
        if len(index):
            part, hastings, rows = self._propose(model, x.rows(index), move[index], t[index], uniforms[index, 2])
            with chains_named(index):
                after = self.energy.evaluate(model, part)
            rows += after.rows
            tau = temperature[index] if isinstance(temperature, Tensor) else temperature
            before = self._log_target(x.free_counts[index], state.energy[index], tau)
            log_ratio[index] = self._log_target(part.free_counts, after.energy, tau) - before + hastings
            proposed = part
        accepted = accept(log_ratio, uniforms[:, 3])
        moved = state if after is None else _taken(state, index, proposed, after, accepted[index])
        changed = accepted & ((move != _REPLACE) | (moved.sequences.tokens_at(t) != x.tokens_at(t)))
        return replace(moved, step=state.step + 1), Info(accepted, log_ratio, t[:, None], changed.long(), rows)

    def _possible(self, state: State, move: Tensor, t: Tensor) -> Tensor:
        """[C] bool: the length stays within bounds, that of each gap too, and no run of free tokens vanishes."""
        x = state.sequences
        count, longest = x.free_counts, state.memory["longest"]
        alone = (run_starts(x) & run_ends(x)).gather(1, t[:, None])[:, 0]
        may_grow, may_shrink = count < longest, (count > self.shortest) & ~alone
        if self.gaps:
            run = run_starts(x).cumsum(1).gather(1, t[:, None]) - 1  # a slot behind a run belongs to that run
            size = run_sizes(x).gather(1, run)[:, 0]
            low, high = torch.tensor(gap_bounds(self.gaps), device=t.device)[run[:, 0]].T
            may_grow, may_shrink = may_grow & (size < high), may_shrink & (size > low)
        return torch.where(move == _INSERT, may_grow, (move == _REPLACE) | may_shrink)

    def _propose(
        self, model: MaskedLM, x: Sequences, move: Tensor, t: Tensor, uniforms: Tensor
    ) -> tuple[Sequences, Tensor, int]:
        """x', log of the ratio of proposal densities [C], model rows. All moves need one conditional: that at t, of x
        with a mask inserted at t (insert), or in place of x_t (replace, and delete: there it is the way back)."""
        grown = inserted(x, t, model.mask_token)
        masked = _chosen(move == _INSERT, grown, x.masked(t, model.mask_token))
        allowed = allowed_at(self.energy, model, masked, t).expand(len(x), -1)
        dead = ~allowed.any(1)  # constraints leave no token for this slot
        log_q = self.proposal.log_prob(conditionals_at(model, masked, t), allowed | dead[:, None])
        old, new = x.tokens_at(t), draw(log_q, uniforms)
        n, runs = x.free_counts.double(), run_starts(x).sum(1).double()
        back, forth = at(log_q, old), at(log_q, new)
        hastings = torch.stack([back - forth, ((n + runs) / (n + 1)).log() - forth, back + (n / (n - 1 + runs)).log()])
        hastings = hastings.gather(0, move[None])[0].masked_fill(dead, -torch.inf)
        return _chosen(move == _DELETE, deleted(x, t), masked.with_tokens(t, new)), hastings, len(x)

    def signature(self) -> str:
        return describe(self)


def gap_bounds(gaps: str) -> list[tuple[int, int]]:
    """Shortest and longest of each gap from `2-4/3-3`. Raises `InputError`."""
    found = []
    for part in filter(None, gaps.split("/")):
        low, dash, high = part.partition("-")
        if not (low.isdecimal() and (high.isdecimal() if dash else True)):
            raise InputError(f"the gap '{part}' is malformed; expected numbers of tokens such as 2-4, or 3")
        bounds = int(low), int(high) if dash else int(low)
        if not 1 <= bounds[0] <= bounds[1]:
            raise InputError(f"the gap '{part}' is out of range; expected 1 ≤ shortest ≤ longest")
        found.append(bounds)
    return found


def _chosen(first: Tensor, one: Sequences, other: Sequences) -> Sequences:
    """Row by row, `one` where `first` [C], else `other`."""
    wide = first[:, None]
    return Sequences(
        torch.where(wide, one.tokens, other.tokens),
        torch.where(wide, one.free, other.free),
        torch.where(wide, one.attention, other.attention),
        one.source,
    )


def _taken(state: State, index: Tensor, proposed: Sequences, after: Evaluation, accepted: Tensor) -> State:
    """The state in which the chains `index[accepted]` are at `proposed`, free positions included."""
    assert state.evaluation is not None
    index, proposed, x = index[accepted], proposed.rows(accepted), state.sequences
    sequences = Sequences(
        x.tokens.index_copy(0, index, proposed.tokens),
        x.free.index_copy(0, index, proposed.free),
        x.attention.index_copy(0, index, proposed.attention),
        x.source,
    )
    evaluation = Evaluation(
        state.energy.index_copy(0, index, after.energy[accepted]),
        state.evaluation.terms.index_copy(0, index, after.terms[accepted]),
    )
    memory = {**state.memory, "free": sequences.free.long()}
    return replace(state, sequences=sequences, evaluation=evaluation, memory=memory)
