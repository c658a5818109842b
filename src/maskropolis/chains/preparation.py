"""From a configuration to a run that is ready to start: kernel, first state, plan and signature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from maskropolis import __version__
from maskropolis.chains.configuration import MOST_STEPS, SamplingConfig
from maskropolis.chains.driver import Plan, Tick, run
from maskropolis.decoders.constrained import require_movable, require_supported
from maskropolis.decoders.starts import blank_chains, fill_chains, unknown_context
from maskropolis.errors import InputError, NumericalError
from maskropolis.kernels.base import Kernel, State, adapting_steps
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.schedule import Schedule
from maskropolis.targets.steered import steering

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run that is ready to start, or to go on.

    Attributes:
        state: where it goes on from (its step number included). chains: [C] int64, the run's index of each row.
        notices: what went wrong with single chains while they were prepared.
    """

    model: HuggingFaceMaskedLM
    config: SamplingConfig
    kernel: Kernel
    state: State
    chains: Tensor
    plan: Plan
    notices: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """One line that says how the samples are made, so that two people's samples can be compared."""
        return signature(self.model, self.config, self.kernel, self.plan)

    def ticks(self) -> Iterator[Tick]:
        return run(self.model, self.kernel, self.state, self.chains, self.plan, self.config.seed)

    def until(self, steps: int) -> Prepared:
        """The same run with another number of steps in all."""
        return replace(self, plan=replace(self.plan, steps=steps))


def prepare(
    model: HuggingFaceMaskedLM, config: SamplingConfig, kernel: Kernel | None = None, first: int = 0
) -> Prepared:
    """Build the kernel, fill the starts, evaluate the first state. Raises `InputError` before the model is run.

    `kernel` is that of `config`, where it is built already. `first` is the index of the first chain, where these chains
    are some of a run's. A chain whose logits are NaN or infinite already here is left out, with a notice;
    `NumericalError` if all are.
    """
    kernel, blank, plan = check(model, config, kernel)
    notices = unknown_context(model, config.templates)

    def filled(sequences: Sequences, chains: Tensor) -> Sequences:
        return fill_chains(model, sequences, config.start, config.seed, chains.tolist(), kernel.energy)

    sequences, chains = _for_survivors(filled, blank, torch.arange(first, first + len(blank)), notices)
    steered = steering(kernel.energy)
    if steered is not None:
        require_supported(steered, sequences, chains)
        require_movable(model, steered, sequences, chains)
    state, chains = _for_survivors(lambda rows, _: kernel.init(model, rows), sequences, chains, notices)
    return Prepared(model, config, kernel, state, chains, plan, tuple(notices))


def check(
    model: HuggingFaceMaskedLM, config: SamplingConfig, kernel: Kernel | None = None
) -> tuple[Kernel, Sequences, Plan]:
    """Kernel, chains with masks not filled yet, and plan. Raises `InputError`; the model is not run."""
    kernel = config.make_kernel(model) if kernel is None else kernel
    given = config.lengths or config.templates or config.texts
    blank = blank_chains(
        model,
        config.chains,
        lengths=config.lengths if given else (12,),
        templates=config.templates,
        texts=config.texts,
        fixed=config.fixed,
        how=config.start,
    )
    return kernel, blank, _plan(config, kernel, int(blank.free_counts.max()))


def _for_survivors(
    make: Callable[[Sequences, Tensor], T], sequences: Sequences, chains: Tensor, notices: list[str]
) -> tuple[T, Tensor]:
    """What `make` gives for the chains that do not meet NaN or infinite logits in it, and which these are."""
    while True:
        try:
            return make(sequences, chains), chains
        except NumericalError as error:
            left = torch.ones(len(chains), dtype=torch.bool)
            left[list(error.chains)] = False
            named = NumericalError(f"{error.plain} at the start", chains[list(error.chains)].tolist())
            if not error.chains or not bool(left.any()):
                raise named from None
            notices.append(f"{named}; the other chains go on")
            sequences, chains = sequences.rows(left.to(sequences.device)), chains[left]


def _plan(config: SamplingConfig, kernel: Kernel, free: int) -> Plan:
    """Sweeps into steps: a sweep of the chain with most free positions."""
    sweep = kernel.steps_per_sweep(free)
    burn_in, thin = round(config.burn_in * sweep), max(1, round(config.thin * sweep))
    steps = config.steps or burn_in + config.samples * thin
    if steps > MOST_STEPS:
        raise InputError(f"burn-in, thin and samples make {steps:.3g} steps; expected at most {MOST_STEPS:g} in all")
    if config.steps is not None and burn_in + thin > steps:
        burn_in, thin = max(0, steps - thin), min(thin, steps)
    adapting = adapting_steps(kernel)
    if adapting > burn_in:
        raise InputError(
            f"the kernel adapts for {adapting} steps, but only {burn_in} are burn-in; lower adapt, or lengthen the "
            "burn-in (with a number of steps, it is what these leave after thin)"
        )
    return Plan(steps, burn_in, thin, config.make_schedule(steps))


def signature(model: HuggingFaceMaskedLM, config: SamplingConfig, kernel: Kernel, plan: Plan) -> str:
    steps = f"{plan.steps}(burn-in {plan.burn_in}, thin {plan.thin})"
    return signature_of(model, config, kernel, plan.schedule, str(config.chains), steps)


def signature_of(
    model: HuggingFaceMaskedLM, config: SamplingConfig, kernel: Kernel, schedule: Schedule, chains: str, steps: str
) -> str:
    """`chains` and `steps` in words."""
    target = "exact" if kernel.exact and schedule.constant else "annealed" if kernel.exact else "no target"
    parts = {
        "model": f"{model.name}@{model.fingerprint()[:12]}",
        "energy": config.energy if kernel.energy is None else kernel.energy.name,
        "kernel": f"{kernel.signature()}[{target}]",
        "temperature": schedule.signature(),
        "start": config.start,
        "chains": chains,
        "steps": steps,
        "seed": config.seed,
        "version": __version__,
    }
    return "maskropolis|" + "|".join(f"{key}:{value}" for key, value in parts.items())
