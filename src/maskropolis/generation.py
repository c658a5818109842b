"""Filling in masks without a chain: `generate`, by masked diffusion, Mask-Predict or Langevin dynamics.

Fast, but the samples follow the decoder's own distribution, not exp(−E(x)/τ). Chains that start from them
(`sample(start="diffusion")`) are corrected towards that target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskropolis import __version__
from maskropolis.chains.configuration import MOST_CHAINS, MOST_STEPS
from maskropolis.decoders.diffusion.ancestral import Ancestral
from maskropolis.decoders.diffusion.confidence import ORDERS, Confidence
from maskropolis.decoders.diffusion.first_hitting import FirstHitting
from maskropolis.decoders.diffusion.remasking import Remasking
from maskropolis.decoders.diffusion.reverse import Observe, Reverse, diffuse, stream_source, unobserved
from maskropolis.decoders.langevin import Langevin, langevin
from maskropolis.decoders.mask_predict import mask_predict
from maskropolis.decoders.starts import blank_chains, unknown_context
from maskropolis.decoders.writing import Writing
from maskropolis.errors import InputError, unknown_name
from maskropolis.models import load
from maskropolis.models.denoising.denoiser import HuggingFaceDenoiser
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.randomness import START, Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import energy_by_name

METHODS = ("diffusion", "mask-predict", "langevin")
SAMPLERS = ("ancestral", "first-hitting", *ORDERS)
_STEPS = {"ancestral": 128, "mask-predict": 10, "langevin": 128}  # by default; the confidence orders take 32


@dataclass(frozen=True)
class GenerationConfig:
    """What to fill in and how. Raises `InputError` for values out of range.

    Attributes:
        method: diffusion, mask-predict or langevin. sampler: of diffusion, one of `SAMPLERS`.
        lengths, templates: at most one; blanks of these lengths, or texts whose masks are filled; entries take turns.
        chains: how many sequences. steps: of the reverse process or of the dynamics, or iterations of Mask-Predict.
        noise: schedule of the steps. temperature, top_p: see `Writing`. block: masks in a semi-autoregressive block.
        remasking: `cap=η` or `rescale=η`, for ancestral. choice_temperature: of the confidence orders.
        levels, step_size, sigmas, decode: of langevin, see `Langevin`; sigmas are the highest and the lowest.
        energy: raw or norm, of the finished sequences.
    """

    method: str = "diffusion"
    sampler: str = "ancestral"
    lengths: tuple[int, ...] = ()
    templates: tuple[str, ...] = ()
    chains: int = 8
    steps: int | None = None
    noise: str = "log-linear"
    temperature: float = 1.0
    top_p: float = 1.0
    block: int | None = None
    remasking: str | None = None
    choice_temperature: float = 0.0
    levels: int = 32
    step_size: float = 0.5
    sigmas: tuple[float, float] | None = None
    decode: str = "likeliest"
    energy: str = "norm"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown_name("method", self.method, ("mh", *METHODS))
        if self.sampler not in SAMPLERS:
            raise unknown_name("sampler", self.sampler, SAMPLERS)
        if not 0 <= self.seed < 2**64:
            raise InputError(f"seed {self.seed} is out of range; expected a whole number from 0 to 2^64 - 1")
        if self.count < 1:
            raise InputError(f"{self.count} steps are too few; expected at least 1")
        for value, name, most in ((self.count, "steps", MOST_STEPS), (self.chains, "chains", MOST_CHAINS)):
            if value > most:
                raise InputError(f"{value} {name} are too many; expected at most {most:g}")
        if self.block is not None and self.block < 1:
            raise InputError(f"a block of {self.block} tokens is too small; expected at least 1")
        energy_by_name(self.energy)
        self.make_sampler()
        if self.method == "langevin":
            self.make_langevin()

    @property
    def count(self) -> int:
        """Steps, with the default of the method."""
        if self.steps is not None:
            return self.steps
        return _STEPS.get(self.sampler if self.method == "diffusion" else self.method, 32)

    def make_sampler(self) -> Reverse:
        """The reverse process that these settings name. Raises `InputError` for settings that it does not have."""
        writing = Writing(self.temperature, self.top_p)
        if self.remasking and self.sampler != "ancestral":
            raise InputError(f"remasking belongs to the ancestral sampler; '{self.sampler}' never masks a token again")
        if self.choice_temperature and self.sampler not in ORDERS:
            raise InputError(f"a choice temperature belongs to {', '.join(ORDERS)}; '{self.sampler}' has no order")
        if self.sampler == "ancestral":
            return Ancestral(self.count, self.noise, writing, _remasking(self.remasking))
        if self.sampler == "first-hitting":
            if self.steps is not None:
                raise InputError("first-hitting has no steps to choose: it writes one token at a time")
            return FirstHitting(writing)
        return Confidence(self.sampler, self.count, self.noise, writing, self.choice_temperature)

    def make_langevin(self) -> Langevin:
        """The dynamics that these settings name. Raises `InputError` for settings that they do not have."""
        high, low = self.sigmas or (None, None)
        return Langevin(self.levels, self.count, self.step_size, high, low, self.decode)

    def signature(self) -> str:
        """How, without model and seed."""
        if self.method == "langevin":
            return self.make_langevin().signature()
        if self.method == "mask-predict":
            return f"mask-predict(iterations={self.count})"
        block = "" if self.block is None else f",block={self.block}"
        return f"{self.make_sampler().signature()}[T={self.temperature:g},top-p={self.top_p:g}{block}]"


def _remasking(text: str | None) -> Remasking:
    if text is None:
        return Remasking()
    strategy, _, value = text.partition("=")
    try:
        return Remasking(strategy, float(value))
    except ValueError:
        raise InputError(f"remasking '{text}' is malformed; expected cap=NUMBER or rescale=NUMBER") from None


@dataclass(frozen=True, eq=False)
class Generated:
    """Finished sequences. `records`: one dictionary each (chain, text, token_ids, energy). `rows`: model rows of the
    generation, energies not counted."""

    sequences: Sequences
    records: list[dict[str, Any]]
    rows: int
    signature: str
    notices: list[str] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [record["text"] for record in self.records]

    @property
    def energy(self) -> list[float]:
        return [record["energy"] for record in self.records]


def generate(
    model: HuggingFaceMaskedLM | str | Path | None = None,
    *,
    length: int | Sequence[int] | None = None,
    template: str | Sequence[str] | None = None,
    **settings: Any,
) -> Generated:
    """Fill masks: `generate(length=12, chains=8, sampler="first-hitting", seed=1).texts`.

    `length` (12 by default) or `template` say where the masks are; `settings` are the other fields of
    `GenerationConfig`. A sequence depends on the seed and its number alone, not on the others. Raises
    `MaskropolisError`.
    """
    for name in settings:
        if name not in GenerationConfig.__dataclass_fields__:
            raise unknown_name("setting", name, GenerationConfig.__dataclass_fields__)
    if length is not None:
        settings["lengths"] = (length,) if isinstance(length, int) else tuple(length)
    if template is not None:
        settings["templates"] = (template,) if isinstance(template, str) else tuple(template)
    config = GenerationConfig(**settings)
    return run(model if isinstance(model, HuggingFaceMaskedLM) else load(model), config)


def run(model: HuggingFaceMaskedLM, config: GenerationConfig, observe: Observe = unobserved) -> Generated:
    """Generate as `config` says; `observe` is told of the steps of diffusion and of Langevin dynamics."""
    lengths = config.lengths if config.lengths or config.templates else (12,)
    blank = blank_chains(model, config.chains, lengths=lengths, templates=config.templates)
    if config.method == "mask-predict":
        filled = mask_predict(model, blank, config.count)
        sequences, rows = filled.sequences, filled.rows
    elif config.method == "langevin":
        streams = Streams(config.seed, range(len(blank)), START)
        annealed = langevin(HuggingFaceDenoiser(model), blank, config.make_langevin(), streams, observe)
        sequences, rows = annealed.sequences, annealed.rows
    else:
        streams = Streams(config.seed, range(len(blank)), START)
        source = stream_source(streams, blank.width, blank.device)
        done = diffuse(model, blank, config.make_sampler(), source, config.block, observe)
        sequences, rows = done.sequences, done.rows
    energy = energy_by_name(config.energy).evaluate(model, sequences).energy.tolist()
    texts, lengths_of = model.codec.decode(sequences), sequences.lengths.tolist()
    records = [
        {"chain": chain, "text": text, "token_ids": tokens[:size], "energy": value}
        for chain, (text, tokens, size, value) in enumerate(
            zip(texts, sequences.tokens.tolist(), lengths_of, energy, strict=True)
        )
    ]
    return Generated(sequences, records, rows, _signature(model, config), unknown_context(model, config.templates))


def _signature(model: HuggingFaceMaskedLM, config: GenerationConfig) -> str:
    parts = {
        "model": f"{model.name}@{model.fingerprint()[:12]}",
        "method": config.method,
        "decoder": config.signature(),
        "target": "none",
        "energy": config.energy,
        "chains": config.chains,
        "seed": config.seed,
        "version": __version__,
    }
    return "maskropolis|" + "|".join(f"{key}:{value}" for key, value in parts.items())
