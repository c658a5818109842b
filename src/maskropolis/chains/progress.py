"""The live display of a run on standard error: steps per second, energy, acceptance, time left."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from maskropolis.chains.driver import Tick


class Progress:
    """A context manager; `show` is called after every step. Nothing is printed unless `wanted` or on a terminal."""

    def __init__(self, steps: int, wanted: bool | None = None, what: str = "sampling") -> None:
        self._on = sys.stderr.isatty() if wanted is None else wanted
        self._steps, self._what = steps, what
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self._on:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            from maskropolis.terminal import new_console

            self._bar = Bar(
                TextColumn(self._what),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[report]}"),
                TimeRemainingColumn(),
                console=new_console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._what, total=self._steps, report="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, tick: Tick, acceptance: float) -> None:
        """Update the line; energies are reduced only when the display is on."""
        if self._bar is None:
            return
        speed = self._bar.tasks[0].speed
        energy = float(tick.state.energy.mean())
        report = f"{speed or 0:.1f} steps/s  energy {energy:.2f}  accepted {acceptance:.0%}  τ {tick.temperature:.2f}"
        self._bar.update(self._task, completed=tick.step, report=report)
