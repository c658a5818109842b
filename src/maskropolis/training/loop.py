"""The training loop: pure steps over a stateless stream of batches, with exact resume.

Everything random in step n is drawn from (seed, n), so the state of a run is the weights, the optimiser's moments, the
step and the seconds spent, and nothing else.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from maskropolis.errors import InputError, NumericalError, RunError, unknown_name
from maskropolis.training import checkpoint
from maskropolis.training.data.batches import Batches, stream
from maskropolis.training.masked.prediction import Predictor, losses, objective_value
from maskropolis.training.objectives import Objective, Vocabulary
from maskropolis.training.optimisation import Budget, adamw, rate
from maskropolis.training.team import Team

PRECISIONS = ("auto", "bf16", "fp32")
_PAUSE = 5.0  # seconds: a step that takes longer, and 5 times the usual, was suspended


@dataclass(frozen=True)
class Settings:
    """The numbers of a run. `checkpoint_every` and `evaluate_every` are in steps; `patience` in evaluations."""

    budget: Budget
    peak: float = 5e-4
    warmup: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    precision: str = "auto"
    evaluate_every: int = 500
    checkpoint_every: int = 500
    patience: int | None = None

    def __post_init__(self) -> None:
        for name in ("peak", "clip"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name):g}; expected a number above 0")
        for name in ("evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected at least 1 step")
        if self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)


@dataclass
class Progress:
    """Where a run stands. `best` is the lowest evaluation loss, `stale` the evaluations since."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    best: float = math.inf
    stale: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


class Listener(Protocol):
    """What is told of the run as it goes: the display."""

    def on_step(self, progress: Progress, loss: float, spent: float) -> None: ...

    def on_evaluation(self, progress: Progress, loss: float) -> None: ...


class Silent:
    """Shows nothing."""

    def on_step(self, progress: Progress, loss: float, spent: float) -> None:
        return

    def on_evaluation(self, progress: Progress, loss: float) -> None:
        return


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and saved its state first."""


class Trainer:
    """Trains `model` on `batches`; state in `folder`/checkpoint.safetensors, the best so far in best.safetensors."""

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        objective: Objective,
        vocabulary: Vocabulary,
        settings: Settings,
        folder: Path,
        evaluate: Callable[[Predictor, Callable], float] | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.settings, self.batches, self.objective, self.vocabulary = settings, batches, objective, vocabulary
        self.folder, self.evaluate, self.listener = folder, evaluate, listener or Silent()
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision="no")  # our own autocast
        self.model = model.to(self.accelerator.device)
        self.predictor = Predictor(self.model)
        self.optimiser = self.accelerator.prepare(adamw(self.model, settings.peak, settings.weight_decay))
        self.team = Team(self.accelerator)
        self.progress = Progress()
        self._stop = False

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def best(self) -> Path:
        return self.folder / "best.safetensors"

    def resume(self) -> None:
        """Continue from the checkpoint. Raises `RunError` if there is none."""
        if not self.checkpoint.is_file():
            raise RunError(f"nothing to resume: '{self.checkpoint}' is not there")
        self.progress = Progress(**checkpoint.load(self.checkpoint, self.model, self.optimiser.optimizer))

    def autocast(self) -> torch.autocast:
        """The precision that was asked for, as a context."""
        half = uses_bf16(self.settings.precision)
        return torch.autocast(self.accelerator.device.type, dtype=torch.bfloat16, enabled=half)

    def spent(self) -> float:
        return self.settings.budget.spent(self.progress.step, self.progress.seconds)

    def run(self) -> Progress:
        """Train until the budget is spent or patience is lost. Raises `Interrupted` after SIGINT or SIGTERM."""
        self.model.train()
        with self._signals():
            while self.spent() < 1.0 and not self._lost_patience():
                self._timed_step()
                step = self.progress.step
                if self.evaluate and (step % self.settings.evaluate_every == 0 or self.spent() >= 1.0):
                    self._evaluate()
                if self._stop or step % self.settings.checkpoint_every == 0:
                    self.save()
                if self._stop:
                    raise Interrupted
        self.save()
        return self.progress

    def save(self) -> None:
        if self.accelerator.is_main_process:
            checkpoint.save(self.checkpoint, self.model, self.optimiser.optimizer, asdict(self.progress))

    def _lost_patience(self) -> bool:
        return self.settings.patience is not None and self.progress.stale >= self.settings.patience

    def _timed_step(self) -> None:
        began = time.monotonic()
        loss, tokens = self.step(self.progress.step, self.spent())
        took = time.monotonic() - began
        usual = self.progress.seconds / self.progress.step if self.progress.step else took
        took = usual if took > max(_PAUSE, 5 * usual) else took
        self.progress.seconds, self._stop = self.team.agree(self.progress.seconds + took, self._stop)
        self.progress.step += 1
        self.progress.tokens += tokens
        self.listener.on_step(self.progress, loss, self.spent())

    def step(self, number: int, spent: float) -> tuple[float, int]:
        """One update. Returns (loss in nats per chosen token, tokens seen). Raises `NumericalError`."""
        torch.manual_seed((self.settings.seed << 32) + number)  # dropout only
        loss, tokens = self.loss(number)
        self.accelerator.backward(loss)
        value = self.team.add(self.model, float(loss.detach()))
        if not math.isfinite(value):
            raise NumericalError(
                f"the loss of step {number} is {value}; the last checkpoint is intact: try a lower --learning-rate"
            )
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = rate(self.settings.peak, self.settings.warmup, number, spent)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return value, tokens

    def loss(self, number: int) -> tuple[Tensor, int]:
        """The loss of this process's share of a step's batch, and the tokens in the whole batch."""
        batch = self.batches.at(number)
        corrupted = self.objective.corrupt(
            batch.tokens, batch.starts, self.vocabulary, stream(self.settings.seed, 3, number)
        )
        mine = slice(self.accelerator.process_index, None, self.accelerator.num_processes)
        part = corrupted.rows(mine)
        with self.autocast():
            each = losses(self.predictor, batch.tokens[mine], part, self.accelerator.device)
        return objective_value(each, part), batch.tokens.size

    def _evaluate(self) -> None:
        assert self.evaluate is not None
        self.model.eval()
        loss = self.evaluate(self.predictor, self.autocast)
        self.model.train()
        if loss < self.progress.best:
            self.progress.best, self.progress.stale = loss, 0
            if self.accelerator.is_main_process:
                checkpoint.save(self.best, self.model, None, {"step": self.progress.step, "loss": loss})
        else:
            self.progress.stale += 1
        self.progress.history.append({"step": self.progress.step, "loss": loss})
        self.listener.on_evaluation(self.progress, loss)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask the run to stop after the current step; a second one stops it at once."""

        def ask(number: int, frame: Any) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True

        before = {}
        with suppress(ValueError):  # not the main thread: signals are somebody else's business
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def uses_bf16(precision: str) -> bool:
    """Whether to compute in bfloat16: asked for, or `auto` on a processor with instructions for it."""
    if precision != "auto":
        return precision == "bf16"
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
