"""Everything that determines a run, next to the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from maskropolis.chains.steering import Steering
from maskropolis.decoders.starts import STARTS
from maskropolis.errors import InputError, unknown_name
from maskropolis.kernels.base import Kernel
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.targets.energy import Energy, energy_by_name
from maskropolis.targets.schedule import COLDEST, HOTTEST, SHAPES, Schedule

MOST_CHAINS = 10**7
MOST_STEPS = 10**12


@dataclass(frozen=True)
class SamplingConfig:
    """What to sample and how. A *sweep* visits each free position once on average.

    Raises `InputError` for values out of range.

    Attributes:
        lengths, templates, texts: what the chains start from, at most one of the three; entries take turns. By default
            12 free tokens.
        names: of the texts, e.g. from FASTA headers; carried along.
        fixed: spans of the texts that must not change.
        chains: number of independent chains.
        start: what masked positions begin with: greedy, sampled, random or diffusion.
        energy: raw or norm, the target exp(−E/τ).
        experts: energies added to it, `kind:…:weight`. require, forbid: words that every text holds, or none. allow:
            sets of tokens for free positions. no_repeat: n, if no n tokens in a row may occur twice. See `Steering`.
        kernel: name, or `name:key=value,…`.
        temperature: τ, or the first τ of a schedule; final_temperature: the last; schedule: its shape.
        burn_in, thin: sweeps before the first, and between, kept states. samples: kept states a chain.
        steps: total steps, instead of the number that follows from burn_in, thin and samples.
        seed: of all random numbers.
    """

    lengths: tuple[int, ...] = ()
    templates: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    chains: int = 8
    start: str = "greedy"
    energy: str = "norm"
    experts: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    no_repeat: int | None = None
    kernel: str = "single-site"
    temperature: float = 1.0
    final_temperature: float | None = None
    schedule: str = "constant"
    burn_in: float = 15
    thin: float = 5
    samples: int = 1
    steps: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in (("chains", MOST_CHAINS), ("samples", MOST_STEPS), ("steps", MOST_STEPS)):
            if name != "steps" or self.steps is not None:
                require_count(name, getattr(self, name), most)
        if not _is_whole(self.seed) or self.seed < 0:
            raise InputError(f"seed {self.seed!r} is out of range; expected a whole number, at least 0")
        for length in self.lengths:
            if not _is_whole(length):
                raise InputError(f"length {length!r} is malformed; expected a whole number")
        for name in ("templates", "experts", "require", "forbid", "allow", "fixed"):
            for value in getattr(self, name):
                _require_string(name, value)
        for name in ("start", "energy", "kernel", "schedule"):
            _require_string(name, getattr(self, name))
        if self.seed >= 2**64:
            raise InputError(f"seed {self.seed} is out of range; expected a whole number below 2^64")
        for name in ("burn_in", "thin"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value <= MOST_STEPS:
                expected = f"a number of sweeps from 0 to {MOST_STEPS:g}"
                raise InputError(f"{as_option(name)} {value!r} is out of range; expected {expected}")
        for name in ("temperature", "final_temperature"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value) or not COLDEST <= value <= HOTTEST):
                expected = f"a number from {COLDEST:g} to {HOTTEST:g}"
                raise InputError(f"{as_option(name)} {value!r} is out of range; expected {expected}")
        if self.schedule in SHAPES[1:] and self.final_temperature is None:
            raise InputError(
                f"a {self.schedule} schedule needs a final temperature to go to; give one, or leave it away"
            )
        if self.names and len(self.names) != len(self.texts):
            raise InputError(f"{len(self.names)} names for {len(self.texts)} texts; expected one for each, or none")
        if self.start not in STARTS:
            raise unknown_name("start", self.start, STARTS)
        kernel, steering = self.make_kernel(), self.steering
        if steering.experts and not kernel.exact:
            raise InputError(f"experts need a kernel with a target; '{kernel.name}' has none")
        self.make_schedule(1)

    @property
    def steering(self) -> Steering:
        return Steering(self.experts, self.require, self.forbid, self.allow, self.no_repeat)

    def make_energy(self, model: HuggingFaceMaskedLM) -> Energy:
        """The target's energy, its experts loaded."""
        return self.steering.energy(energy_by_name(self.energy), model)

    def make_kernel(self, model: HuggingFaceMaskedLM | None = None) -> Kernel:
        """The kernel; without a model its energy has no experts or constraints."""
        return build_kernel(self.kernel, energy_by_name(self.energy) if model is None else self.make_energy(model))

    def make_schedule(self, steps: int) -> Schedule:
        """τ over `steps` steps. Two temperatures without a shape anneal geometrically."""
        annealing = self.final_temperature not in (None, self.temperature)
        shape = "geometric" if annealing and self.schedule == "constant" else self.schedule
        return Schedule(self.temperature, self.final_temperature, steps, shape)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SamplingConfig:
        """Raises `InputError` for a field that there is not."""
        for name in values:
            if name not in cls.__dataclass_fields__:
                raise unknown_name("setting", name, cls.__dataclass_fields__)
        fields: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in values.items()}
        return cls(**fields)


def require_count(name: str, value: Any, most: int) -> None:
    """Raise `InputError` unless `value` is a whole number from 1 to `most`."""
    if not _is_whole(value) or not 1 <= value <= most:
        raise InputError(f"{as_option(name)} {value!r} is out of range; expected a whole number from 1 to {most:g}")


def as_option(name: str) -> str:
    """The name of a setting as the command line writes it, e.g. `burn-in`."""
    return name.replace("_", "-")


def _require_string(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InputError(f"{name} {value!r} is of type {type(value).__name__}; expected text")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
