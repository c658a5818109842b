"""Sampling from the distribution that a masked language model implicitly is: the verbs `sample` and `resume`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from maskropolis.chains.configuration import SamplingConfig
from maskropolis.chains.portions import Portion, portions, require_enough_burn_in, require_lines
from maskropolis.chains.preparation import Prepared, prepare
from maskropolis.chains.progress import Progress
from maskropolis.chains.running import steps as steps_of
from maskropolis.chains.samples import Samples
from maskropolis.chains.stopping import StopSignals
from maskropolis.errors import InputError, RunError, unknown_name
from maskropolis.kernels.base import remark
from maskropolis.models import load
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.protocol import Budget
from maskropolis.records import Record
from maskropolis.runs.checkpoint import Checkpoint, load_state
from maskropolis.runs.describing import describe_run, plan_of, require_same_model, rounding_notices
from maskropolis.runs.folder import Run, open_run, require_run
from maskropolis.runs.lock import locked
from maskropolis.runs.recorder import Recorder
from maskropolis.runs.recording import run_recorded, threads
from maskropolis.runs.resuming import clear, discard, last_good, require_free, require_trusted

__all__ = [
    "Prepared", "SamplingConfig", "open_run", "prepare", "record", "resume", "run_prepared", "sample", "sample_lines",
]  # fmt: skip

_LISTS = ("lengths", "templates", "texts", "names", "fixed", "experts", "require", "forbid", "allow")
_Several = str | Sequence[str] | None


@overload
def sample(
    model: HuggingFaceMaskedLM | str | Path | None = None,
    *,
    length: int | Sequence[int] | None = None,
    template: _Several = None,
    text: _Several = None,
    out: None = None,
    overwrite: bool = False,
    checkpoint_every: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Samples: ...


@overload
def sample(
    model: HuggingFaceMaskedLM | str | Path | None = None,
    *,
    length: int | Sequence[int] | None = None,
    template: _Several = None,
    text: _Several = None,
    out: str | Path,
    overwrite: bool = False,
    checkpoint_every: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Run: ...


def sample(
    model: HuggingFaceMaskedLM | str | Path | None = None,
    *,
    length: int | Sequence[int] | None = None,
    template: _Several = None,
    text: _Several = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    checkpoint_every: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Samples | Run:
    """Draw sequences from π_τ(x) ∝ exp(−E(x)/τ) of a masked language model by Markov chain Monte Carlo.

    `model` is a `HuggingFaceMaskedLM`, a hub name or a folder; by default the English model of the package. `length`,
    `template` (with `[MASK]` where tokens are free) or `text` say what the chains start from, by default 12 free
    tokens. `settings` are the other fields of `SamplingConfig`: chains, start, energy, kernel, temperature, burn_in,
    thin, samples, seed, …. `progress` shows a live display on standard error, by default on a terminal.

    With `out`, a folder, the run is written there and survives whatever stops it: see `resume`. `overwrite` replaces a
    run that is there, `checkpoint_every` is the number of steps that are at most to be made again after a kill.

    Ctrl-C ends the run and returns what was sampled (`interrupted` is then True). Raises `MaskropolisError`.

        >>> maskropolis.sample(length=12, chains=8, kernel="block:k=2", seed=1).texts
    """
    starts = {"lengths": length, "templates": template, "texts": text}
    config = _config(settings | {key: value for key, value in starts.items() if value is not None})
    if out is not None:
        require_free(Path(out), overwrite)
    opened = model if isinstance(model, HuggingFaceMaskedLM) else load(model)
    prepared = prepare(opened, config)
    if out is None:
        return run_prepared(prepared, progress)
    return record(prepared, out, overwrite, checkpoint_every, progress)


def sample_lines(
    lines: Iterable[str],
    model: HuggingFaceMaskedLM | str | Path | None = None,
    *,
    first: int = 0,
    progress: bool | None = None,
    **settings: Any,
) -> Iterator[Portion]:
    """One chain from each of `lines`, which may be as many as you like: portions of records, the lines in order.

    `settings` are those of `sample`. To go on with a job, pass the lines that are left and as `first` how many came
    before them, a multiple of `maskropolis.chains.portions.PORTION`. See there. Raises `MaskropolisError`.

        >>> for portion in sample_lines(open("lines.txt"), experts=["keyword:sea:5"]):
        ...     print(*(record["text"] for record in portion.records), sep="\\n")
    """
    config = _config(settings)
    require_lines(config)
    require_enough_burn_in(config, config.make_kernel())
    opened = model if isinstance(model, HuggingFaceMaskedLM) else load(model)
    records = (Record(line.rstrip("\r\n"), n, f"line {n}") for n, line in enumerate(lines, start=first + 1))
    return portions(opened, config, config.make_kernel(opened), records, first, progress)


def _config(settings: dict[str, Any]) -> SamplingConfig:
    for name, value in settings.items():
        if name not in SamplingConfig.__dataclass_fields__:
            raise unknown_name("setting", name, SamplingConfig.__dataclass_fields__)
        if name in _LISTS:
            several = isinstance(value, Iterable) and not isinstance(value, str)
            settings[name] = tuple(map(_plain, value if several else [value]))
        else:
            settings[name] = _plain(value)
    return SamplingConfig(**settings)


def _plain(value: Any) -> Any:
    """A number of Python's for one of NumPy's, so that it can stand in a run's description."""
    return value.item() if isinstance(value, np.generic) else value


def run_prepared(
    prepared: Prepared,
    progress: bool | None = None,
    keep: Callable[[list[dict[str, Any]]], None] | None = None,
) -> Samples:
    """Run in memory, to the end of the plan or a stop signal. `keep` is called with the records of each kept step."""
    plan = prepared.plan
    samples = Samples(prepared.signature, prepared.config.to_json(), plan.burn_in, plan.thin, planned_steps=plan.steps)
    samples.notices.extend(prepared.notices)
    with StopSignals() as stop, Progress(plan.steps, progress) as display:
        for step in steps_of(prepared):
            samples.add(step.tick, step.seconds, step.records)
            samples.notices.extend(step.notices)
            display.show(step.tick, samples.acceptance_rate)
            if keep is not None and step.records:
                keep(step.records)
            if stop.received:
                break
        samples.totals.remark = remark(prepared.kernel, step.tick.state)
    samples.stopped_by = stop.received if samples.interrupted else None
    return samples


def record(
    prepared: Prepared,
    out: str | Path,
    overwrite: bool = False,
    checkpoint_every: int | None = None,
    progress: bool | None = None,
) -> Run:
    """Run into the folder `out`. Raises `RunError` if it holds a run (unless `overwrite`), other files or is in use."""
    if checkpoint_every is not None and checkpoint_every < 1:
        raise InputError(f"checkpoint-every {checkpoint_every} is out of range; expected at least 1 step")
    folder = Path(out)
    require_free(folder, overwrite)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create the folder '{folder}': {error.strerror}") from None
    with locked(folder):
        require_free(folder, overwrite)
        clear(folder)
        recorder = Recorder(folder, describe_run(prepared, checkpoint_every))
        recorder.totals.notices.extend(prepared.notices)
        run_recorded(prepared, recorder, progress)
    return open_run(folder)


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    model: HuggingFaceMaskedLM | str | Path | None = None,
    device: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    trust_run_code: bool = False,
    progress: bool | None = None,
) -> Run:
    """Go on with the run in the folder `path` to the samples that it would have produced without the interruption.

    `steps` is the total number of steps, counted from the start of the run; above the planned number it extends the
    run, also a finished one (τ stays at the last of its schedule). `model` says where the model is now, if it moved:
    its weights must be those that the run was started with. What needs trust is not taken from the folder:
    `allow_pickle`, `trust_remote_code`, and `trust_run_code`, without which no function that it names is imported.
    Damaged files are repaired by going back to the last good state; `notices` names them.

    Raises `RunError` if there is no run, another process holds it, or the model changed.
    """
    folder = Path(path)
    require_run(folder)
    with locked(folder):
        found = last_good(folder)
        description, checkpoint = found.description, found.checkpoint
        made = 0 if checkpoint is None else checkpoint.step
        description["steps"] = _total(steps, description["steps"], made)
        if made == description["steps"]:
            Recorder(folder, description, checkpoint).mark("finished")
            return open_run(folder)
        require_trusted(folder, description, trust_run_code)
        opened = _model_of(description, model, device, allow_pickle, trust_remote_code)
        require_same_model(opened, description, folder)
        with threads(description["machine"]["threads"]):
            prepared = _prepared_again(folder, description, checkpoint, opened)
            discard(folder, checkpoint)
            recorder = Recorder(folder, description | {"signature": prepared.signature}, checkpoint)
            notices = [*prepared.notices, *found.notices, *rounding_notices(description, opened)]
            recorder.totals.notices.extend(note for note in notices if note not in recorder.totals.notices)
            run_recorded(prepared, recorder, progress)
    return open_run(folder)


def _total(wanted: int | None, planned: int, made: int) -> int:
    if wanted is None:
        return planned
    if wanted < max(1, made):
        raise InputError(
            f"--steps {wanted} is below the {made} steps already made; expected the total, counted from the start"
        )
    return wanted


def _model_of(
    description: dict[str, Any],
    model: HuggingFaceMaskedLM | str | Path | None,
    device: str | None,
    allow_pickle: bool,
    trust_remote_code: bool,
) -> HuggingFaceMaskedLM:
    """The model of a run, loaded as it was then."""
    if isinstance(model, HuggingFaceMaskedLM):
        return model
    saved = description["model"]
    options = saved["loaded_with"]
    if not options and model is None:
        raise RunError("this run was started with a model made in Python; pass it: maskropolis.resume(…, model=…)")
    opened = load(
        model or saved["folder"] or saved["name"],
        device=device or description["machine"]["device"],
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        **{key: options[key] for key in ("tokenizer", "dtype", "revision", "format") if key in options},
    )
    opened.name = saved["name"]
    return opened


def _prepared_again(
    folder: Path, description: dict[str, Any], checkpoint: Checkpoint | None, model: HuggingFaceMaskedLM
) -> Prepared:
    """The run, ready to go on after `checkpoint`, or from its start if that is None."""
    config, plan = SamplingConfig.from_json(description["config"]), plan_of(description)
    model.budget = Budget(**(description["model"]["budget"] if checkpoint is None else checkpoint.budget))
    if checkpoint is None:
        return replace(prepare(model, config), plan=plan)
    state = load_state(folder, checkpoint, model.device)
    return Prepared(model, config, config.make_kernel(model), state, torch.tensor(checkpoint.chains), plan)
