"""The progress of training a translation model: as for other models, with BLEU in place of perplexity."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from maskropolis.terminal import new_console
from maskropolis.training.display import Display
from maskropolis.training.history import History
from maskropolis.training.loop import Progress


class ParallelDisplay(Display):
    """See `Display`; an evaluation tells minus BLEU."""

    def on_evaluation(self, progress: Progress, loss: float) -> None:
        bleu = round(-loss, 4)
        seconds = round(progress.seconds, 3)
        self.history.add(step=progress.step, tokens=progress.tokens, seconds=seconds, validation_bleu=bleu)
        self._say(f"step {progress.step}, {seconds / 60:.1f} minutes: BLEU {bleu:.2f} on held-out pairs")


@contextmanager
def parallel_display(history: History) -> Iterator[ParallelDisplay]:
    """A bar on standard error if that is a terminal, else plain lines."""
    if not sys.stderr.isatty():
        yield ParallelDisplay(history)
        return
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=new_console(stderr=True)) as bar:
        yield ParallelDisplay(history, bar)
