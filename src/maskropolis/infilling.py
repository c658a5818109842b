"""Filling gaps in prose by Metropolis–Hastings: `fill`.

    π_τ(x) ∝ exp(−E(x) / τ)    on the fillings whose gaps keep their bounds

Gaps of fixed length are sampled at that length; where a gap may be longer or shorter, the kernel `resize` moves between
lengths, exactly. Sums over many texts make up there for what a token costs: with the norm energy and τ = 1 the weights
of all fillings of a gap of one token sum to about 1.

Single fillings are another matter: the best of several is chosen by E − c n, so that a token of average cost neither
helps nor harms. The offset c is a number, the slope of E over n on a user's own texts (`targets.lengths.token_offset`)
or, unless told otherwise, the mean energy of a token of the prose around the gaps. It is reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskropolis.chains.configuration import MOST_CHAINS, SamplingConfig, require_count
from maskropolis.chains.preparation import Prepared, prepare
from maskropolis.chains.progress import Progress
from maskropolis.chains.running import kept_records, steps
from maskropolis.chains.samples import Samples
from maskropolis.chains.stopping import StopSignals
from maskropolis.decoders.gaps import GappedText, Span, joined
from maskropolis.decoders.starts import blank_chains, fill_chains
from maskropolis.errors import InputError, unknown_name
from maskropolis.models import load
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.text.codec import require_text
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import energy_by_name
from maskropolis.targets.lengths import token_offset

_AT_ONCE = 64  # texts
_GIVEN = ("lengths", "templates", "texts", "names", "fixed", "chains", "samples")


@dataclass(frozen=True)
class Filling:
    """One filled text.

    Attributes:
        text: the prose with its gaps filled. spans: what fills them, and where, in characters.
        energy: of the filling. score: E − c n, by which the best is chosen; lower is better.
        sample: its number. chain: which of the chains it is from.
    """

    text: str
    spans: tuple[Span, ...]
    energy: float
    score: float
    sample: int
    chain: int
    token_ids: tuple[int, ...]

    def as_row(self) -> dict[str, Any]:
        spans = [{"start": s.start, "stop": s.stop, "text": s.text, "tokens": s.tokens} for s in self.spans]
        return {
            "sample": self.sample,
            "text": self.text,
            "fillings": spans,
            "energy": round(self.energy, 6),
            "score": round(self.score, 6),
            "chain": self.chain,
            "token_ids": list(self.token_ids),
        }


@dataclass(frozen=True, eq=False)
class Filled:
    """All samples, in order. offset: c in nats a token, 0 where no lengths are compared; offset_source: where from."""

    fillings: list[Filling]
    offset: float
    offset_source: str
    signature: str
    rows: int
    acceptance_rate: float
    stopped_by: int | None = None
    notices: list[str] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [filling.text for filling in self.fillings]


def fill(
    template: str,
    model: HuggingFaceMaskedLM | str | Path | None = None,
    *,
    samples: int = 1,
    best_of: int = 1,
    offset: float | None = None,
    offset_texts: Sequence[str] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Filled:
    """Fill the gaps of a text: `fill("She opened the [MASK:2-4] and saw [MASK:3].", samples=5, best_of=16)`.

    `samples` independent chains give as many samples of the target; with `best_of` each is the best, by E − c n, of so
    many chains, and no longer a sample of it; `offset` or `offset_texts` then give c. `settings` are other fields of
    `SamplingConfig`: energy, kernel, temperature, burn_in, require, allow, experts, seed, …. Raises `InputError` for a
    malformed gap or setting.
    """
    require_text(template, "the text")
    for name, value in (("samples", samples), ("best_of", best_of)):
        require_count(name, value, MOST_CHAINS)
    require_count("samples x best-of", samples * best_of, MOST_CHAINS)
    for name in settings:
        if name in _GIVEN or name not in SamplingConfig.__dataclass_fields__:
            raise unknown_name("setting", name, set(SamplingConfig.__dataclass_fields__) - set(_GIVEN))
    settings = {"start": "sampled"} | {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    opened = model if isinstance(model, HuggingFaceMaskedLM) else load(model)
    gapped = GappedText.parse(template, opened.codec.tokenizer.mask_token)
    lengths = gapped.lengths(best_of if best_of > 1 else samples)
    templates = tuple(gapped.template(one) for one in lengths)
    chains = samples * best_of
    config = SamplingConfig(
        templates=templates * (chains // len(templates)), chains=chains, samples=1, **_kernel(gapped, settings)
    )
    found, source = 0.0, ""
    if gapped.variable and (best_of > 1 or offset is not None or offset_texts):
        found, source = _offset(opened, config, offset, offset_texts)
    run, last = _run(prepare(opened, config), progress)
    every = [_filling(opened, gapped, record, free, found, record["chain"] // best_of) for record, free in last]
    best = {one.sample: one for one in sorted(every, key=lambda one: -one.score)}
    ordered = [best[sample] for sample in sorted(best)]
    return Filled(
        ordered, found, source, run.signature, run.rows, run.acceptance_rate, run.stopped_by, list(run.notices)
    )


def _run(prepared: Prepared, progress: bool | None) -> tuple[Samples, list[tuple[dict[str, Any], list[bool]]]]:
    """The run, and the record and free positions of the last state of each chain, also after a stop signal."""
    plan = prepared.plan
    samples = Samples(prepared.signature, prepared.config.to_json(), plan.burn_in, plan.thin, planned_steps=plan.steps)
    samples.notices.extend(prepared.notices)
    with StopSignals() as stop, Progress(plan.steps, progress) as display:
        for step in steps(prepared):
            samples.add(step.tick, step.seconds, [])
            samples.notices.extend(step.notices)
            display.show(step.tick, samples.acceptance_rate)
            if stop.received:
                break
    samples.stopped_by = stop.received if samples.interrupted else None
    records, free = kept_records(prepared, step.tick), step.tick.state.sequences.free.tolist()
    return samples, [(one, row[: len(one["token_ids"])]) for one, row in zip(records, free, strict=True)]


def _kernel(gapped: GappedText, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with a kernel that keeps the bounds of the gaps."""
    if not gapped.variable:
        return settings
    name, _, given = str(settings.get("kernel") or "resize").partition(":")
    if name != "resize":
        raise InputError(f"the kernel '{name}' keeps lengths; gaps of unknown length need resize")
    if "gaps=" in given:
        raise InputError("the gaps of the kernel are those of the text; leave them away")
    if settings.get("energy", "norm") != "norm" and "offset=" not in given:
        raise InputError(
            "the raw energy has no zero, so that longer gaps would win or lose by its scale; use the norm energy, or "
            "--kernel resize:offset=C"
        )
    return settings | {"kernel": "resize:" + ",".join(filter(None, [given, f"gaps={gapped.bounds}"]))}


def _offset(
    model: HuggingFaceMaskedLM, config: SamplingConfig, given: float | None, texts: Sequence[str]
) -> tuple[float, str]:
    """c and where it comes from."""
    if given is not None and texts:
        raise InputError("expected one of an offset and texts to estimate it from; got both")
    if given is not None and not math.isfinite(given):
        raise InputError(f"the offset {given} is out of range; expected a finite number of nats a token")
    if given is not None:
        return float(given), "given"
    if texts:
        return offset_of_texts(model, config.energy, texts), f"the slope of E over n on {len(texts)} texts"
    return _of_prose(model, config), "the mean cost of a token of the prose around the gaps"


def offset_of_texts(model: HuggingFaceMaskedLM, energy: str, texts: Sequence[str]) -> float:
    """The slope of the energy called `energy` over the number of tokens, in nats a token, on texts of a user's own.

    Raises `InputError` for an empty text, or if all have the same length.
    """
    parts = [
        model.codec.encode(texts[start : start + _AT_ONCE], first_line=start + 1).to(model.device)
        for start in range(0, len(texts), _AT_ONCE)
    ]
    return round(token_offset(model, energy_by_name(energy), parts), 4)


def _of_prose(model: HuggingFaceMaskedLM, config: SamplingConfig) -> float:
    """Mean share of the tokens around the gaps in the energy of the first start: a model row for each of them."""
    blank = blank_chains(model, 1, templates=config.templates[:1])
    start = fill_chains(model, blank, "greedy", config.seed, [0])
    prose = ~start.free & model.allowed[start.tokens] & start.attention
    if not bool(prose.any()):
        return 0.0
    around = Sequences(start.tokens, prose, start.attention)
    return round(float(energy_by_name(config.energy).evaluate(model, around).energy[0] / prose.sum()), 4)


def _filling(
    model: HuggingFaceMaskedLM,
    gapped: GappedText,
    record: dict[str, Any],
    free: list[bool],
    offset: float,
    sample: int,
) -> Filling:
    """`free` [T]: which tokens fill gaps."""
    ids = record["token_ids"]
    text, spans = joined(model.codec, gapped, ids, free)
    score = record["energy"] - offset * sum(free)
    return Filling(text, tuple(spans), record["energy"], score, sample, record["chain"], tuple(ids))
