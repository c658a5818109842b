"""Runs a kernel: steps, temperatures, which states are kept, and what happens when a model's numbers go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.chains.packing import settled
from maskropolis.errors import InputError, NumericalError
from maskropolis.kernels.base import Info, Kernel, State
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import Streams
from maskropolis.targets.schedule import Schedule


@dataclass(frozen=True)
class Plan:
    """How long to run and what to keep, in steps. A state is kept after every `thin` steps once `burn_in` are over."""

    steps: int
    burn_in: int = 0
    thin: int = 1
    schedule: Schedule = Schedule()

    def __post_init__(self) -> None:
        if self.steps < 1 or self.burn_in < 0 or self.thin < 1:
            raise InputError(
                f"steps {self.steps}, burn-in {self.burn_in}, thin {self.thin} are out of range; "
                "expected steps ≥ 1, burn-in ≥ 0, thin ≥ 1"
            )
        if self.burn_in + self.thin > self.steps:
            raise InputError(
                f"{self.steps} steps end before the first sample (burn-in {self.burn_in} + thin {self.thin}); "
                "run longer or shorten them"
            )

    def keeps(self, step: int) -> bool:
        """Whether the state after `step` steps (counted from 1) is kept."""
        return step > self.burn_in and (step - self.burn_in) % self.thin == 0


@dataclass(frozen=True, eq=False)
class Tick:
    """One step of all chains that are still running.

    Attributes:
        step: steps made, counted from 1.
        chains: [C] int64, the run's index of each row.
        temperature: τ of this step.
        state, info: what the kernel returned.
        kept: whether the plan keeps this state.
        failed: what stopped chains at this step, if any did.
    """

    step: int
    chains: Tensor
    temperature: float
    state: State
    info: Info
    kept: bool
    failed: tuple[NumericalError, ...] = ()


def run(model: MaskedLM, kernel: Kernel, state: State, chains: Tensor, plan: Plan, seed: int) -> Iterator[Tick]:
    """Step from `state` (its step number onwards) to the end of the plan.

    `chains` [C] are the indices that key the random streams. A chain whose logits are NaN or infinite stops there; the
    others go on with the same uniforms. Raises `NumericalError`, naming chain and step, when no chain is left.
    """
    streams = Streams(seed, chains.tolist())
    while state.step < plan.steps:
        temperature = plan.schedule(state.step)
        failed: list[NumericalError] = []
        while True:
            uniforms = streams.uniforms(state.step, kernel.uniforms_per_step, state.sequences.device)
            try:
                state, info = kernel.step(model, state, temperature, uniforms)
                state = settled(state)
                break
            except NumericalError as error:
                failed.append(_named(error, chains, state.step + 1))
                state, chains = _without(state, chains, error)
                streams = Streams(seed, chains.tolist())
        yield Tick(state.step, chains, temperature, state, info, plan.keeps(state.step), tuple(failed))


def _named(error: NumericalError, chains: Tensor, step: int) -> NumericalError:
    return NumericalError(f"{error.plain} at step {step}", chains[list(error.chains)].tolist())


def _without(state: State, chains: Tensor, error: NumericalError) -> tuple[State, Tensor]:
    left = torch.ones(len(chains), dtype=torch.bool)
    left[list(error.chains)] = False
    if not error.chains or not bool(left.any()):
        raise _named(error, chains, state.step + 1)
    return state.rows(left.to(state.sequences.device)), chains[left]
