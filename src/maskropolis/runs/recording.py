"""Runs a prepared run into a folder, and leaves a good state behind whatever ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from maskropolis.chains.driver import Tick
from maskropolis.chains.preparation import Prepared
from maskropolis.chains.progress import Progress
from maskropolis.chains.running import steps
from maskropolis.chains.stopping import StopSignals
from maskropolis.errors import NumericalError, RunError
from maskropolis.kernels.base import remark
from maskropolis.runs.recorder import Recorder


def run_recorded(prepared: Prepared, recorder: Recorder, progress: bool | None = None) -> None:
    """Step to the end of the plan, or to Ctrl-C or SIGTERM, committing at the steps that the recorder says.

    Raises `RunError` if the disk is full, memory runs out for good, or no chain is left; any other exception goes on
    its way with a note that says how to resume. In each case the folder holds a state to resume from.
    """
    last: Tick | None = None
    with StopSignals() as stop, Progress(prepared.plan.steps, progress) as display:
        try:
            recorder.mark("running")
            for step in steps(prepared):
                last = step.tick
                recorder.add(step)
                display.show(last, recorder.totals.acceptance_rate)
                if stop.received or recorder.due(last.step):
                    recorder.totals.remark = remark(prepared.kernel, last.state)
                    recorder.commit(last.state, last.chains, prepared.model.budget)
                if stop.received:
                    break
            done = recorder.step >= prepared.plan.steps
            recorder.mark("finished" if done else "interrupted", stopped_by=None if done else stop.received)
        except Exception as error:
            raise _after_failure(error, prepared, recorder, last) from error


def _after_failure(error: Exception, prepared: Prepared, recorder: Recorder, last: Tick | None) -> Exception:
    """Commit the last whole step if that is possible, and say how to go on."""
    if isinstance(error, OSError):
        error = recorder.cannot_write(error)
    elif last is not None and not isinstance(error, RunError):
        with contextlib.suppress(RunError):
            recorder.commit(last.state, last.chains, prepared.model.budget)
    recorder.try_to_mark("failed", " ".join(f"{type(error).__name__}: {error}".split()))
    where = f"the state after step {recorder.step} is safe in '{recorder.folder}'"
    if isinstance(error, NumericalError):
        return RunError(f"{error}; no chain is left; what was sampled before is in '{recorder.folder}'")
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return RunError(
            f"memory ran out even for one model row; {where}; "
            f"free some memory, then `maskropolis resume {recorder.folder}` goes on"
        )
    if not isinstance(error, RunError):
        error.add_note(f"{where}; `maskropolis resume {recorder.folder}` goes on")
    return error


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Within the context torch uses `count` threads: how sums are split among threads decides their rounding."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
