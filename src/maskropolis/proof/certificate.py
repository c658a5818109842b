"""The certificate of exactness: every registered kernel against distributions that can be enumerated.

A kernel K is exact when π K = π. Its full transition matrix P is computed from the code that samples
(`maskropolis.proof.transition`), the target π_τ ∝ exp(−E/τ) by evaluating every state; then max |π P − π| is zero up
to the rounding of float64 sums, and so is the distance between π and the distribution in which the chain settles.

A kernel may say more about itself by optional attributes of its class:

    variants                  tuple of specifications, e.g. ("block", "block:k=3"); by default its bare name
    enumerate(model, states, temperature) -> (State, log weights [S'])
                              for a kernel on a larger space than sequences (replicas, levels): all states of that space
                              and the logarithm of their target; it is asked for two tokens at two positions
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from maskropolis.kernels import KERNELS
from maskropolis.kernels.base import Kernel, State
from maskropolis.kernels.specification import build_kernel
from maskropolis.proof.markov import (
    closed_classes,
    detailed_balance_error,
    invariance_error,
    long_run_distribution,
    spectral_gap,
    total_variation,
)
from maskropolis.proof.situations import Situation
from maskropolis.proof.transition import transition_of_states
from maskropolis.targets.energy import ENERGIES, Energy

TOLERANCE = 1e-10
"""Largest |π P − π| of an exact kernel. The sums have at most some thousand float64 terms below 1: rounding stays
below 1e-12. A conditional of a real model is computed once and looked up, so the rounding of its float32 forward pass
does not enter."""


@dataclass(frozen=True)
class Certificate:
    """What was found for one kernel on one model; numbers are NaN where `problem` kept them from being computed.

    Attributes:
        kernel: specification. model: name. energy, temperature: the target. exact: what the kernel declares.
        states: size of the enumerated space. steps: steps after which the kernel repeats itself (1 but for scans).
        invariance_error: max |π P − π|, the largest over these steps.
        detailed_balance_error: max |π_i P_ij − π_j P_ji|, the largest over these steps.
        total_variation: between π and where the chain, started from π, settles.
        spectral_gap: of the `steps` steps together.
        classes: closed classes of states; 1 if all states reach one another.
        problem: why the kernel could not be certified.
    """

    kernel: str
    model: str
    energy: str
    temperature: float
    exact: bool
    states: int = 0
    steps: int = 0
    invariance_error: float = math.nan
    detailed_balance_error: float = math.nan
    total_variation: float = math.nan
    spectral_gap: float = math.nan
    classes: int = 0
    problem: str = ""

    @property
    def holds(self) -> bool:
        """False for a kernel that declares itself exact and is not, or that could not be certified.

        A kernel with its default settings must also reach every state: invariance alone would hold for one that never
        moves.
        """
        if self.problem:
            return False
        if not self.exact:
            return True
        return self.invariance_error <= TOLERANCE and (":" in self.kernel or self.classes == 1)

    def to_json(self) -> dict[str, Any]:
        """The fields, with null for numbers that are not there."""
        values = {**vars(self), "holds": self.holds}
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def certify_all(situations: Iterable[Situation], energies: Iterable[str] = tuple(ENERGIES)) -> Iterator[Certificate]:
    """Certificates of every kernel in the registry, all variants. No kernel is skipped: what fails says so."""
    energies = tuple(energies)
    for situation in situations:
        for specification in specifications():
            if not situation.products and hasattr(_kind(specification), "enumerate"):
                continue
            for energy in energies:
                for temperature in situation.temperatures:
                    yield certify(specification, situation, energy, temperature)


def _kind(specification: str) -> Any:
    return KERNELS[specification.partition(":")[0]]


def specifications() -> list[str]:
    """Every kernel of the registry and its variants, the bare name of each first."""
    found: list[str] = []
    for name, kind in sorted(KERNELS.items()):
        found += dict.fromkeys((name, *getattr(kind, "variants", ())))
    return found


def certify(specification: str, situation: Situation, energy: str, temperature: float = 1.0) -> Certificate:
    """The certificate of one kernel. An error while it runs is its `problem`, never an exception."""
    head: dict[str, Any] = {
        "kernel": specification,
        "model": situation.model.name,
        "energy": energy,
        "temperature": temperature,
        "exact": bool(_kind(specification).exact),
    }
    try:
        kernel = build_kernel(specification, ENERGIES[energy])
        return Certificate(**head, **_measure(kernel, situation, ENERGIES[energy], temperature))
    except Exception as error:  # a kernel that cannot be certified fails, whatever the reason
        return Certificate(**head, problem=" ".join(f"{type(error).__name__}: {error}".split()))


def _measure(kernel: Kernel, situation: Situation, energy: Energy, temperature: float) -> dict[str, Any]:
    if hasattr(kernel, "enumerate"):
        situation = situation.smallest()
    states, target = _space(kernel, situation, energy, temperature)
    matrices = _cycle(kernel, situation, states, temperature)
    for matrix in matrices:
        if float((matrix.sum(1) - 1).abs().max()) > TOLERANCE:
            raise ValueError("the probabilities of what a step can lead to do not sum to one")
    together = torch.linalg.multi_dot(matrices) if len(matrices) > 1 else matrices[0]
    return {
        "states": len(target),
        "steps": len(matrices),
        "invariance_error": max(invariance_error(matrix, target) for matrix in matrices),
        "detailed_balance_error": max(detailed_balance_error(matrix, target) for matrix in matrices),
        "total_variation": total_variation(long_run_distribution(together, target), target),
        "spectral_gap": spectral_gap(together),
        "classes": len(closed_classes(together)),
    }


def _space(kernel: Kernel, situation: Situation, energy: Energy, temperature: float) -> tuple[State, Tensor]:
    """All states of the kernel, and their probabilities under its target."""
    model, sequences = situation.model, situation.states
    enumerate_states = getattr(kernel, "enumerate", None)
    if enumerate_states is not None:
        states, log_weights = enumerate_states(model, sequences, temperature)
    else:
        states = kernel.init(model, sequences)
        log_weights = -energy.evaluate(model, sequences).energy / temperature
    return states, torch.softmax(log_weights.double(), 0)


def _cycle(kernel: Kernel, situation: Situation, states: State, temperature: float) -> list[Tensor]:
    """The transition matrices of consecutive steps until they repeat: one, unless the kernel scans.

    Systematic scans of n positions repeat after n or 2n steps, so repetition is looked for within 2n. Raises
    `ValueError` if there is none.
    """

    def at_step(step: int) -> Tensor:
        return transition_of_states(situation.model, kernel, states, temperature, step)

    first, second = at_step(0), at_step(1)
    if torch.equal(first, second):
        return [first]
    longest = 2 * situation.free
    matrices = [first, second, *(at_step(step) for step in range(2, longest + 1))]
    for period in range(2, longest + 1):
        if all(torch.equal(matrix, matrices[step % period]) for step, matrix in enumerate(matrices)):
            return matrices[:period]
    raise ValueError(f"the kernel depends on the step number and does not repeat within {longest} steps")
