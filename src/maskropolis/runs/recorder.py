"""Writes a run folder: parts of the tables and a checkpoint at fixed steps, each whole or not there.

Order of a commit: parts, tensors of the state, then the checkpoint that lists them all with their checksums. Killed
between any two of these, the last checkpoint stands, and what came after it is discarded on resuming.
"""

from __future__ import annotations

import contextlib
import datetime
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from torch import Tensor

from maskropolis.chains.running import Step
from maskropolis.chains.tables import TraceBuffer, samples_table
from maskropolis.chains.totals import Totals
from maskropolis.errors import RunError
from maskropolis.kernels.base import State
from maskropolis.models.protocol import Budget
from maskropolis.records.files import write_file, write_json
from maskropolis.runs.checkpoint import FOLDER, Checkpoint, Part, save_checkpoint
from maskropolis.runs.folder import RUN_FILE, SAMPLE_FOLDER, TRACE_FOLDER

CHANGING = ("signature", "status", "message", "stopped_by", "step", "steps", "updated")
"""The fields of run.json that change while a run goes on; a checkpoint keeps a copy of all others."""


class Recorder:
    """Collects steps and commits them. The caller holds the lock of the folder.

    `description` is the content of run.json, `after` the checkpoint that the run goes on from.
    """

    def __init__(self, folder: Path, description: dict[str, Any], after: Checkpoint | None = None) -> None:
        self.folder, self.description = folder, description
        self.every = int(description["checkpoint_every"])
        self.step = 0 if after is None else after.step
        self.totals = Totals() if after is None else after.totals
        self._parts = [] if after is None else list(after.parts)
        self._records: list[dict[str, Any]] = []
        self._trace = TraceBuffer()
        for name in (FOLDER, SAMPLE_FOLDER, TRACE_FOLDER):
            (folder / name).mkdir(exist_ok=True)

    def add(self, step: Step) -> None:
        self.totals.count(step.tick, step.seconds)
        self.totals.notices += step.notices
        self._records += step.records
        self._trace.add(step.tick, step.seconds)

    def due(self, step: int) -> bool:
        """Whether the state after `step` steps is to be committed: a function of the configuration alone."""
        return step % self.every == 0 or step == self.description["steps"]

    def commit(self, state: State, chains: Tensor, budget: Budget) -> None:
        """Write what was added, and the state after it. Raises `RunError` if the disk is full or the like."""
        if state.step == self.step:
            return
        try:
            if self._records:
                self._write_part(SAMPLE_FOLDER, state.step, samples_table(self._records))
            self._write_part(TRACE_FOLDER, state.step, self._trace.table())
            unchanging = {key: value for key, value in self.description.items() if key not in CHANGING}
            checkpoint = Checkpoint(
                step=state.step,
                planned=self.description["steps"],
                chains=tuple(chains.tolist()),
                budget=asdict(budget),
                totals=self.totals,
                parts=tuple(self._parts),
                description=unchanging,
            )
            save_checkpoint(self.folder, checkpoint, state)
            self._records, self.step = [], state.step
            self._trace.clear()
            self.mark(self.description["status"])
        except OSError as error:
            raise self.cannot_write(error) from error

    def cannot_write(self, error: OSError) -> RunError:
        return RunError(
            f"cannot write to '{self.folder}': {error.strerror or error}; the state after step {self.step} is safe; "
            f"when this is mended, `maskropolis resume {self.folder}` goes on"
        )

    def mark(self, status: str, message: str = "", stopped_by: int | None = None) -> None:
        """Put the status (running, finished, interrupted or failed) into run.json. Raises `OSError`."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.description |= {"status": status, "message": message, "stopped_by": stopped_by}
        self.description |= {"step": self.step, "updated": now}
        write_json(self.folder / RUN_FILE, self.description)

    def try_to_mark(self, status: str, message: str = "") -> None:
        """`mark`, where a disk that is full must not hide what went wrong before."""
        with contextlib.suppress(OSError):
            self.mark(status, message)

    def _write_part(self, folder: str, step: int, table: pa.Table) -> None:
        buffer = pa.BufferOutputStream()
        pyarrow.parquet.write_table(table, buffer, compression="zstd")
        name = f"{folder}/part-{step:09d}.parquet"
        self._parts.append(Part(name, table.num_rows, write_file(self.folder / name, buffer.getvalue().to_pybytes())))
