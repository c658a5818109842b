"""Sampling from the distribution that a masked language model implicitly is: one public verb, `sample`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from maskropolis import __version__
from maskropolis.chains.driver import Plan, Tick, run
from maskropolis.chains.progress import Progress
from maskropolis.chains.samples import Samples, records_of
from maskropolis.decoders.starts import start_chains
from maskropolis.errors import InputError
from maskropolis.kernels.base import Kernel, State
from maskropolis.kernels.specification import build_kernel
from maskropolis.models import load
from maskropolis.models.huggingface import HuggingFaceMaskedLM
from maskropolis.targets.energy import energy_by_name
from maskropolis.targets.schedule import Schedule


@dataclass(frozen=True)
class SamplingConfig:
    """Everything that determines a run, next to the model. A *sweep* visits each free position once on average.

    Attributes:
        lengths, templates, texts: what the chains start from, exactly one of the three; entries take turns.
        fixed: spans of the texts that must not change.
        chains: number of independent chains.
        start: what masked positions begin with: greedy, sampled or random.
        energy: raw or norm, the target exp(−E/τ).
        kernel: name, or `name:key=value,…`.
        temperature: τ, or the first τ of a schedule; final_temperature: the last; schedule: its shape.
        burn_in, thin: sweeps before the first, and between, kept states. samples: kept states a chain.
        steps: total steps, instead of the number that follows from burn_in, thin and samples.
        seed: of all random numbers.
    """

    lengths: tuple[int, ...] = ()
    templates: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    chains: int = 8
    start: str = "greedy"
    energy: str = "norm"
    kernel: str = "single-site"
    temperature: float = 1.0
    final_temperature: float | None = None
    schedule: str = "constant"
    burn_in: float = 15
    thin: float = 5
    samples: int = 1
    steps: int | None = None
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SamplingConfig:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**fields)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run that is ready to start: kernel, first state, plan and signature."""

    model: HuggingFaceMaskedLM
    config: SamplingConfig
    kernel: Kernel
    state: State
    plan: Plan
    signature: str

    def ticks(self) -> Iterator[Tick]:
        chains = torch.arange(len(self.state.sequences))
        return run(self.model, self.kernel, self.state, chains, self.plan, self.config.seed)


def prepare(model: HuggingFaceMaskedLM, config: SamplingConfig) -> Prepared:
    """Check the configuration, build the kernel, fill the starts. Raises `InputError` before any step is made."""
    kernel = build_kernel(config.kernel, energy_by_name(config.energy))
    _require_range(config)
    given = config.lengths or config.templates or config.texts
    sequences = start_chains(
        model,
        config.chains,
        lengths=config.lengths if given else (12,),
        templates=config.templates,
        texts=config.texts,
        fixed=config.fixed,
        how=config.start,
        seed=config.seed,
    )
    plan = _plan(config, kernel, int(sequences.free_counts.max()))
    state = kernel.init(model, sequences)
    return Prepared(model, config, kernel, state, plan, _signature(model, config, kernel, plan))


def sample(
    model: HuggingFaceMaskedLM | str | None = None,
    *,
    length: int | Sequence[int] | None = None,
    template: str | Sequence[str] | None = None,
    text: str | Sequence[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Samples:
    """Draw sequences from π_τ(x) ∝ exp(−E(x)/τ) of a masked language model by Markov chain Monte Carlo.

    `model` is a `HuggingFaceMaskedLM`, a hub name or a folder; by default the English model of the package. `length`,
    `template` (with `[MASK]` where tokens are free) or `text` say what the chains start from, by default 12 free
    tokens. `settings` are the other fields of `SamplingConfig`: chains, start, energy, kernel, temperature, burn_in,
    thin, samples, seed, …. `progress` shows a live display on standard error, by default on a terminal.

    Ctrl-C ends the run and returns what was sampled (`interrupted` is then True). Raises `MaskropolisError`.

        >>> maskropolis.sample(length=12, chains=8, kernel="block:k=2", seed=1).texts
    """
    unknown = set(settings) - set(SamplingConfig.__dataclass_fields__)
    if unknown:
        raise InputError(f"unknown setting {sorted(unknown)[0]!r}; known: {', '.join(SamplingConfig().to_json())}")
    config = SamplingConfig(lengths=_several(length), templates=_several(template), texts=_several(text), **settings)
    opened = model if isinstance(model, HuggingFaceMaskedLM) else load(model)
    return run_prepared(prepare(opened, config), progress=progress)


def run_prepared(
    prepared: Prepared,
    progress: bool | None = None,
    keep: Callable[[list[dict[str, Any]]], None] | None = None,
) -> Samples:
    """Run to the end of the plan or to Ctrl-C. `keep` is called with the records of each kept step as they are made."""
    samples = Samples(signature=prepared.signature)
    with Progress(prepared.plan.steps, progress) as display:
        try:
            for tick in prepared.ticks():
                samples.count(tick)
                display.show(tick, samples.acceptance_rate)
                if tick.kept:
                    records = kept_records(prepared, tick)
                    samples.records += records
                    if keep is not None:
                        keep(records)
        except KeyboardInterrupt:
            samples.interrupted = True
    return samples


def kept_records(prepared: Prepared, tick: Tick) -> list[dict[str, Any]]:
    """The records of a kept step. Where the kernel tracks no energy, it is computed here."""
    energy, sequences = tick.state.energy, tick.state.sequences
    if tick.state.evaluation is None:
        energy = energy_by_name(prepared.config.energy).evaluate(prepared.model, sequences).energy
    return records_of(tick, prepared.model.codec.decode(sequences), energy)


def _several(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int | str) else tuple(value)


def _require_range(config: SamplingConfig) -> None:
    for name in ("burn_in", "thin"):
        if not 0 <= getattr(config, name) < float("inf"):
            raise InputError(f"{name} {getattr(config, name)} is out of range; expected a number of sweeps ≥ 0")
    if config.samples < 1:
        raise InputError(f"{config.samples} samples a chain are too few; expected at least 1")
    if config.steps is not None and config.steps < 1:
        raise InputError(f"{config.steps} steps are too few; expected at least 1")


def _plan(config: SamplingConfig, kernel: Kernel, free: int) -> Plan:
    """Sweeps into steps: a sweep of the chain with most free positions."""
    sweep = kernel.steps_per_sweep(free)
    burn_in, thin = round(config.burn_in * sweep), max(1, round(config.thin * sweep))
    steps = config.steps or burn_in + config.samples * thin
    if config.steps is not None and burn_in + thin > steps:
        burn_in, thin = max(0, steps - thin), min(thin, steps)
    shape = config.schedule
    if shape == "constant" and config.final_temperature not in (None, config.temperature):
        shape = "geometric"
    schedule = Schedule(config.temperature, config.final_temperature, steps, shape)
    return Plan(steps, burn_in, thin, schedule)


def _signature(model: HuggingFaceMaskedLM, config: SamplingConfig, kernel: Kernel, plan: Plan) -> str:
    """One line that says how the samples were made, so that two people's samples can be compared."""
    target = "exact" if kernel.exact and plan.schedule.constant else "annealed" if kernel.exact else "no target"
    parts = {
        "model": f"{model.name}@{model.fingerprint()[:12]}",
        "energy": config.energy,
        "kernel": f"{kernel.signature()}[{target}]",
        "temperature": plan.schedule.signature(),
        "start": config.start,
        "chains": config.chains,
        "steps": f"{plan.steps}(burn-in {plan.burn_in}, thin {plan.thin})",
        "seed": config.seed,
        "version": __version__,
    }
    return "maskropolis|" + "|".join(f"{key}:{value}" for key, value in parts.items())
