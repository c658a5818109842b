"""The life of a training run, whatever is trained: its folder and record, its start or resumption, its end."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import PartialState

from maskropolis.errors import InputError, RunError
from maskropolis.training import output
from maskropolis.training.history import METRICS, History
from maskropolis.training.loop import Listener, Progress, Settings, Silent, Trainer
from maskropolis.training.memory import keep_freed_blocks
from maskropolis.training.optimisation import Budget

_PACKAGES = ("torch", "transformers", "tokenizers", "accelerate")


class Asked(Protocol):
    """What the options of every kind of training have in common."""

    @property
    def steps(self) -> int | None: ...
    @property
    def minutes(self) -> float | None: ...
    @property
    def epochs(self) -> float: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def warmup(self) -> int: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def clip(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def evaluate_every(self) -> int: ...
    @property
    def checkpoint_every(self) -> int: ...
    @property
    def patience(self) -> int | None: ...

    def as_json(self) -> dict[str, Any]: ...

    def fixed(self) -> dict[str, Any]:
        """The options that must be the same when a run is resumed."""
        ...


@dataclass(frozen=True)
class Run:
    """A run that holds its folder. `main`: this is the first process, the one that writes and shows."""

    folder: Path
    resume: bool
    command: tuple[str, ...]
    main: bool
    stack: ExitStack

    def follow(
        self, trainer: Trainer, show: Callable[[History], AbstractContextManager[Listener]]
    ) -> tuple[Progress, History]:
        """Train to the end, from the checkpoint if there is one to go on from."""
        history = History(self.folder)
        if self.resume and trainer.checkpoint.is_file():
            trainer.resume()
        if self.main:
            history.truncate(trainer.progress.step)
        trainer.listener = self.stack.enter_context(show(history)) if self.main else Silent()
        return trainer.run(), history


@contextmanager
def running(options: Asked, folder: Path, resume: bool, overwrite: bool, command: tuple[str, ...]) -> Iterator[Run]:
    """Claims the folder and writes its record; a run that fails or is interrupted says so there."""
    keep_freed_blocks()
    main = PartialState(cpu=not torch.cuda.is_available()).is_main_process
    with ExitStack() as stack:
        if main:
            stack.enter_context(output.claimed(folder, resume, overwrite))
            _begin(options, folder, resume, command)
        try:
            yield Run(folder, resume, command, main, stack)
        except BaseException as error:
            if main:
                _stopped(folder, error, new=not resume)
            raise


def _begin(options: Asked, folder: Path, resume: bool, command: tuple[str, ...]) -> None:
    """Writes the record of a new run; checks that a resumed one is the same."""
    if not resume:
        made = {"command": list(command), "options": options.as_json(), "versions": versions()}
        return output.write_record(folder, {"status": "running", **made})
    record = output.read_record(folder)
    if record.get("status") == "finished":
        raise RunError(f"the run in '{folder}' is finished; nothing to resume")
    fixed = options.fixed()
    before = {key: value for key, value in record["options"].items() if key in fixed}
    if other := output.differences(before, fixed):
        raise RunError(f"the run in '{folder}' was started with other options: {', '.join(other)}; use the same ones")
    return output.write_record(folder, {**record, "status": "running", "options": options.as_json()})


def _stopped(folder: Path, error: BaseException, new: bool) -> None:
    """Says in the record how the run ended. One asked for wrongly leaves nothing and can be asked for again."""
    if new and isinstance(error, InputError) and not (folder / METRICS).is_file():
        return output.empty(folder)
    with suppress(RunError):  # the first error is the one to tell
        mark(folder, "interrupted" if isinstance(error, KeyboardInterrupt) else "failed")


def mark(folder: Path, status: str, **more: Any) -> None:
    """Put the status, and what else is known, into the record."""
    output.write_record(folder, {**output.read_record(folder), "status": status, **more})


def loop_settings(options: Asked, steps_per_epoch: float) -> Settings:
    """The numbers of the loop; without --steps, as many steps as the epochs take."""
    steps = options.steps or max(1, round(options.epochs * steps_per_epoch))
    if options.steps is None and options.minutes is not None:
        steps = 1 << 40  # the clock alone decides
    return Settings(
        budget=Budget(steps, None if options.minutes is None else 60 * options.minutes),
        peak=options.learning_rate,
        warmup=options.warmup,
        weight_decay=options.weight_decay,
        clip=options.clip,
        seed=options.seed,
        precision=options.precision,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        patience=options.patience,
    )


def versions() -> dict[str, str]:
    """Of what a result depends on."""
    return {"python": platform.python_version(), "maskropolis": version("maskropolis")} | {
        package: version(package) for package in _PACKAGES
    }
