"""The progress of a run on the terminal: loss, tokens per second, time left; a line now and then if there is none."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from maskropolis.terminal import new_console
from maskropolis.training.history import History
from maskropolis.training.loop import Progress

LOG_EVERY = 50  # steps between two points of the training loss
_LINE_EVERY = 30.0  # seconds between lines where no bar can be drawn


class Display:
    """Listens to a `Trainer`: shows and records. The loss shown is the mean since the last recorded point."""

    def __init__(self, history: History, bar: Bar | None = None) -> None:
        self.history, self.bar = history, bar
        self._task = bar.add_task("", total=1.0) if bar else None
        self._sum, self._count = 0.0, 0
        self._mark: tuple[float, int, float] | None = None
        self._loss, self._speed, self._left = math.nan, 0.0, math.nan
        self._last_line = time.monotonic()

    def on_step(self, progress: Progress, loss: float, spent: float) -> None:
        self._sum, self._count = self._sum + loss, self._count + 1
        if self._mark is None:
            self._mark = (progress.seconds, progress.tokens, spent)
        if progress.step % LOG_EVERY == 0 or spent >= 1.0:
            self._record(progress)
        self._estimate(progress, spent)
        self._show(progress, spent)

    def on_evaluation(self, progress: Progress, loss: float) -> None:
        self.history.add(step=progress.step, tokens=progress.tokens, validation_loss=loss)
        perplexity = math.exp(min(loss, 700.0))
        self._say(f"step {progress.step}: held-out loss {loss:.4f}, perplexity of masked tokens {perplexity:.2f}")

    def _record(self, progress: Progress) -> None:
        self._loss = self._sum / self._count
        self.history.add(
            step=progress.step, tokens=progress.tokens, seconds=round(progress.seconds, 3), loss=round(self._loss, 6)
        )
        self._sum, self._count = 0.0, 0

    def _estimate(self, progress: Progress, spent: float) -> None:
        assert self._mark is not None
        seconds, tokens, share = self._mark
        if progress.seconds > seconds:
            self._speed = (progress.tokens - tokens) / (progress.seconds - seconds)
        if spent > share:
            self._left = (1.0 - spent) * (progress.seconds - seconds) / (spent - share)

    def _show(self, progress: Progress, spent: float) -> None:
        loss = self._sum / self._count if math.isnan(self._loss) and self._count else self._loss
        left = "" if math.isnan(self._left) else f", {_clock(self._left)} left"
        text = f"step {progress.step}  loss {loss:.3f}  {self._speed:,.0f} tokens/s{left}"
        if self.bar is not None and self._task is not None:
            self.bar.update(self._task, completed=spent, description=text)
        elif time.monotonic() - self._last_line >= _LINE_EVERY:
            self._last_line = time.monotonic()
            self._say(f"{spent:.0%}  {text}")

    def _say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)


@contextmanager
def display(history: History) -> Iterator[Display]:
    """A bar on standard error if that is a terminal, else plain lines."""
    if not sys.stderr.isatty():
        yield Display(history)
        return
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=new_console(stderr=True)) as bar:
        yield Display(history, bar)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
