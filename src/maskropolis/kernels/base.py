"""What every kernel shares: its state, what it reports of a step, the registry, and the Metropolis decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from maskropolis.errors import NumericalError
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import accept, hopeless
from maskropolis.sequences import Sequences
from maskropolis.targets.bounded import Stop, evaluate_bounded, is_bounded, promising_order
from maskropolis.targets.energy import Energy, Evaluation, Known


@dataclass(frozen=True, eq=False)
class State:
    """Where C chains are.

    Attributes:
        sequences: the tokens.
        evaluation: what the target energy says of them; None for a kernel without a target.
        step: steps made so far.
        memory: what else a kernel carries from step to step, by name; each [C, …]. When a chain moves, `taken` sets its
            floating-point entries to NaN, and the kernel that they belong to computes them anew.
        inner: the state of a kernel inside this one, of C·L rows, L for each chain.
    """

    sequences: Sequences
    evaluation: Evaluation | None = None
    step: int = 0
    memory: dict[str, Tensor] = field(default_factory=dict)
    inner: State | None = None

    @property
    def energy(self) -> Tensor:
        """[C] float64; NaN where the kernel does not track an energy."""
        if self.evaluation is None:
            return torch.full((len(self.sequences),), torch.nan, dtype=torch.float64, device=self.sequences.device)
        return self.evaluation.energy

    def rows(self, index: Tensor) -> State:
        """The chains selected by `index`, [K] int64 or [C] bool."""
        evaluation = self.evaluation
        if evaluation is not None:
            kept = None if evaluation.conditionals is None else evaluation.conditionals.rows(index)
            evaluation = Evaluation(evaluation.energy[index], evaluation.terms[index], kept)
        memory = {key: value[index] for key, value in self.memory.items()}
        inner = None if self.inner is None else self.inner.rows(self._inner_rows(index, len(self.inner.sequences)))
        return State(self.sequences.rows(index), evaluation, self.step, memory, inner)

    def merged(self, index: Tensor, part: State) -> State:
        """The state in which the chains `index` [K] int64 are where the K chains of `part` are."""
        assert self.evaluation is not None and part.evaluation is not None
        tokens = self.sequences.tokens.index_copy(0, index, part.sequences.tokens)
        kept, new = self.evaluation.conditionals, part.evaluation.conditionals
        evaluation = Evaluation(
            self.energy.index_copy(0, index, part.energy),
            self.evaluation.terms.index_copy(0, index, part.evaluation.terms),
            kept if kept is None or new is None else kept.replaced(index, new),
        )
        memory = {key: value.index_copy(0, index, part.memory[key]) for key, value in self.memory.items()}
        return State(replace(self.sequences, tokens=tokens), evaluation, part.step, memory, self.inner)

    def _inner_rows(self, index: Tensor, rows: int) -> Tensor:
        chains = index.nonzero()[:, 0] if index.dtype == torch.bool else index
        each = rows // max(1, len(self.sequences))
        return (chains[:, None] * each + torch.arange(each, device=chains.device)).flatten()


class Info(NamedTuple):
    """What a diagnostic needs to know of one step.

    Attributes:
        accepted: [C] bool.
        log_ratio: [C] float64, log of the acceptance ratio before min(1, ·); 0 where the proposal equals the state. An
            upper bound of it where a proposal was rejected early.
        positions: [C, K] int64, positions that were proposed to change.
        changed: [C] int64, tokens that did change.
        rows: model rows evaluated, all chains together.
    """

    accepted: Tensor
    log_ratio: Tensor
    positions: Tensor
    changed: Tensor
    rows: int


class Kernel(Protocol):
    """A Markov kernel on the free positions. `exact` kernels leave π_τ invariant when τ is fixed.

    Pure: no hidden state, no random numbers but the uniforms that are passed in.
    """

    name: ClassVar[str]
    exact: ClassVar[bool]

    @property
    def energy(self) -> Energy | None: ...

    @property
    def uniforms_per_step(self) -> int: ...

    def steps_per_sweep(self, free: int) -> int:
        """Steps in which each of `free` positions is visited once on average."""
        ...

    def init(self, model: MaskedLM, sequences: Sequences) -> State: ...

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """One step of all chains; `uniforms` [C, uniforms_per_step] in (0, 1), `temperature` a number or [C]."""
        ...

    def signature(self) -> str: ...


def remark(kernel: Kernel, state: State) -> str:
    """What a kernel has to say of the steps that led to `state`, if it has a method for that; else empty."""
    return str(kernel.remark(state)) if hasattr(kernel, "remark") else ""


def adapting_steps(kernel: Kernel) -> int:
    """In how many first steps a kernel may change itself; 0 for one that has no field `adapt`."""
    return int(getattr(kernel, "adapt", 0))


KERNELS: dict[str, type[Any]] = {}
"""Every kernel by name; filled by `register` when `maskropolis.kernels` is imported."""

K = TypeVar("K")


def register(name: str, *, exact: bool) -> Callable[[type[K]], type[K]]:
    """Class decorator: puts a kernel into `KERNELS`. `exact`: it leaves π_τ invariant."""

    def add(kind: type[K]) -> type[K]:
        if name in KERNELS and KERNELS[name].__qualname__ != kind.__qualname__:
            raise ValueError(f"two kernels are called '{name}'")
        kind.name, kind.exact = name, exact  # type: ignore[attr-defined]
        KERNELS[name] = kind
        return kind

    return add


def describe(kernel: Any) -> str:
    """`name(field=value,…)` with the fields that differ from their defaults; the energy is named elsewhere.

    `specification.build_kernel` builds the kernel from this text again.
    """
    parts = []
    for item in fields(kernel):
        value = getattr(kernel, item.name)
        if item.name == "energy" or value == item.default:
            continue
        shown = value.signature() if hasattr(value, "signature") else value
        parts.append(shown if item.name == "proposal" else f"{item.name}={shown}")
    inner = ",".join(part for part in parts if part)
    return f"{kernel.name}({inner})" if inner else str(kernel.name)


class Proposal(NamedTuple):
    """A move that has not been decided yet.

    Attributes:
        sequences: x'.
        log_q: [C] float64, log q(x|x') − log q(x'|x); −inf where the reverse move is impossible.
        positions: [C, K] int64, positions that were drawn anew.
        known: a masked conditional of x' that was met on the way.
        rows: model rows that it cost.
    """

    sequences: Sequences
    log_q: Tensor
    positions: Tensor
    known: Known | None
    rows: int


class Proposer(Protocol):
    """A kernel that is a proposal followed by one Metropolis decision, whose uniform is the last of a step."""

    @property
    def energy(self) -> Energy: ...

    @property
    def early_rejection(self) -> bool: ...

    def propose(self, model: MaskedLM, state: State, uniforms: Tensor) -> Proposal: ...


def propose_and_decide(
    kernel: Proposer, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor
) -> tuple[State, Info]:
    """One step of a `Proposer`."""
    proposal = kernel.propose(model, state, uniforms)
    decision = metropolis(
        model,
        kernel.energy,
        state,
        proposed=proposal.sequences,
        log_q=proposal.log_q,
        temperature=temperature,
        uniforms=uniforms[:, -1],
        known=proposal.known,
        early=kernel.early_rejection,
    )
    changed = state.sequences.changes(decision.state.sequences)
    moved = replace(decision.state, step=state.step + 1)
    rows = proposal.rows + decision.rows
    return moved, Info(decision.accepted, decision.log_ratio, proposal.positions, changed, rows)


class Decision(NamedTuple):
    """Outcome of `metropolis`: the new state, accepted [C], log ratio [C], rows evaluated."""

    state: State
    accepted: Tensor
    log_ratio: Tensor
    rows: int


def metropolis(
    model: MaskedLM,
    energy: Energy,
    state: State,
    proposed: Sequences,
    log_q: Tensor,
    temperature: float | Tensor,
    uniforms: Tensor,
    known: Known | None = None,
    early: bool = False,
) -> Decision:
    """Accept x' with probability min(1, exp(−(E(x') − E(x))/τ) · q(x|x') / q(x'|x)).

    `log_q` [C] is log q(x|x') − log q(x'|x), −inf where the reverse move is impossible: such a move is rejected.
    A proposal equal to the state costs no row, and so does an impossible one. `known` is a conditional of x'. With
    `early`, an evaluation stops where its running sum already decides for rejection, if the energy has such a bound.
    Conditionals are kept if the state has some. Metropolis et al. (1953), Hastings (1970).
    """
    assert state.evaluation is not None
    moved = (proposed.tokens != state.sequences.tokens).any(1)
    log_ratio = torch.where(moved, -torch.inf, 0.0).double()
    asked = (moved & (log_q > -torch.inf)).nonzero()[:, 0]
    evaluation = None
    if len(asked):
        tau = temperature if isinstance(temperature, Tensor) else torch.full_like(log_q, temperature)

        def ratio(of: Tensor, found: Tensor) -> Tensor:
            return (state.energy[of] - found) / tau[of] + log_q[of]

        def stop(of: Tensor, partial: Tensor) -> Tensor:
            return hopeless(ratio(asked[of], partial), uniforms[asked[of]])

        early = early and is_bounded(energy)
        evaluation = evaluate_rows(model, energy, state, proposed, asked, known, stop if early else None)
        log_ratio[asked] = ratio(asked, evaluation.energy)
    accepted = accept(log_ratio, uniforms)
    if evaluation is not None:
        state = taken(state, proposed, asked, evaluation, accepted[asked])
    return Decision(state, accepted, log_ratio, 0 if evaluation is None else evaluation.rows)


def evaluate_rows(
    model: MaskedLM,
    energy: Energy,
    state: State,
    proposed: Sequences,
    index: Tensor,
    known: Known | None = None,
    stop: Stop | None = None,
) -> Evaluation:
    """Energy of the chains `index` [K] of x' only; an error names chains of the whole batch.

    Conditionals are kept if the state has some. `stop` ends the evaluation of chains by their running sums.
    """
    assert state.evaluation is not None
    keep = state.evaluation.conditionals is not None
    part = None if known is None else Known(known.positions[index], known.logits[index])
    with chains_named(index):
        if stop is None:
            return energy.evaluate(model, proposed.rows(index), keep=keep, known=part)
        order = promising_order(state.sequences.rows(index), proposed.rows(index), state.evaluation.terms[index])
        return evaluate_bounded(model, energy, proposed.rows(index), order, stop, keep=keep, known=part)


@contextmanager
def chains_named(index: Tensor) -> Iterator[None]:
    """Within the context only the chains `index` [K] are at work; an error names them by their place in the batch."""
    try:
        yield
    except NumericalError as error:
        raise NumericalError(error.plain, index[list(error.chains)].tolist()) from None


def taken(state: State, proposed: Sequences, asked: Tensor, evaluation: Evaluation, accepted: Tensor) -> State:
    """The state in which chains `asked[accepted]` have moved to `proposed`, with the evaluation made for `asked`."""
    assert state.evaluation is not None
    if not bool(accepted.any()):
        return state
    index = asked[accepted]
    kept = None if evaluation.conditionals is None else evaluation.conditionals.rows(accepted)
    moved = Evaluation(evaluation.energy[accepted], evaluation.terms[accepted], kept)
    memory = {key: _outdated(value, index) for key, value in state.memory.items()}
    part = State(proposed.rows(index), moved, state.step, {key: value[index] for key, value in memory.items()})
    return replace(state, memory=memory).merged(index, part)


def _outdated(value: Tensor, chains: Tensor) -> Tensor:
    return value.index_fill(0, chains, torch.nan) if value.is_floating_point() else value
