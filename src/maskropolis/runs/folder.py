"""A run on disk, for reading: its configuration, kept states and trace, also while it is still going on.

my-run/run.json                 configuration, model fingerprint, versions, status
       samples/part-*.parquet   kept states (`maskropolis.chains.tables.SAMPLES`)
       trace/part-*.parquet     every step of every chain (`maskropolis.chains.tables.TRACE`)
       checkpoint/              the latest two complete states
       run.lock                 held by the process that runs it
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from maskropolis.chains.tables import SAMPLES, TRACE
from maskropolis.chains.totals import Totals
from maskropolis.errors import RunError
from maskropolis.records import open_records
from maskropolis.records.files import read_json
from maskropolis.records.inside import inside, require_own, require_regular
from maskropolis.runs.checkpoint import FOLDER as CHECKPOINT_FOLDER
from maskropolis.runs.checkpoint import Checkpoint, Part, checkpoints
from maskropolis.runs.lock import is_locked

if TYPE_CHECKING:
    import arviz
    import pandas

RUN_FILE = "run.json"
SAMPLE_FOLDER, TRACE_FOLDER = "samples", "trace"
OWN = (RUN_FILE, CHECKPOINT_FOLDER, SAMPLE_FOLDER, TRACE_FOLDER)
"""What is in a run folder and must be there itself, not a link to elsewhere."""
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder as it was when opened; opening it again sees what has been written since.

    Nothing is read before it is asked for. Tables are checked against the checksums of the run: a damaged file raises
    `RunError` with its name.

    Attributes:
        path: the folder.
        description: the content of run.json.
        checkpoint: the latest; None before the first.
    """

    path: Path
    description: dict[str, Any]
    checkpoint: Checkpoint | None

    @property
    def config(self) -> dict[str, Any]:
        """The fields of `SamplingConfig`."""
        config: dict[str, Any] = self.description["config"]
        return config

    @property
    def signature(self) -> str:
        """Model, energy, kernel, temperature, seed and version in one line."""
        return str(self.description["signature"])

    @property
    def status(self) -> str:
        """`running`, `finished`, `interrupted`, `failed`, or `killed`: it says running, but no process holds it."""
        status = str(self.description["status"])
        return "killed" if status == "running" and not is_locked(self.path) else status

    @property
    def interrupted(self) -> bool:
        """Whether the run ended before its last step."""
        return self.status not in ("running", "finished")

    @property
    def stopped_by(self) -> int | None:
        """The signal that ended the run early, if one did."""
        found: int | None = self.description.get("stopped_by")
        return found

    @property
    def totals(self) -> Totals:
        return Totals() if self.checkpoint is None else self.checkpoint.totals

    @property
    def steps(self) -> int:
        """Steps made, up to the latest checkpoint."""
        return 0 if self.checkpoint is None else self.checkpoint.step

    @property
    def planned_steps(self) -> int:
        return int(self.description["steps"])

    @property
    def burn_in(self) -> int:
        """Steps before the first state that could be kept."""
        return int(self.description["plan"]["burn_in"])

    @property
    def thin(self) -> int:
        """Steps between kept states."""
        return int(self.description["plan"]["thin"])

    @property
    def rows(self) -> int:
        """Model rows evaluated."""
        return self.totals.rows

    @property
    def notices(self) -> list[str]:
        """What went wrong with single chains."""
        return self.totals.notices

    @property
    def acceptance_rate(self) -> float:
        """Share of proposals accepted over the whole run, burn-in included."""
        return self.totals.acceptance_rate

    def samples(self) -> pa.Table:
        """Kept states, all chains of a step together: the columns of `tables.SAMPLES`."""
        return _joined(list(self._tables(SAMPLE_FOLDER)), SAMPLES)

    def trace(self) -> pa.Table:
        """Every step of every chain, burn-in included: the columns of `tables.TRACE`."""
        return _joined(list(self._tables(TRACE_FOLDER)), TRACE)

    @property
    def texts(self) -> list[str]:
        return self.samples().column("text").to_pylist()

    @property
    def energy(self) -> list[float]:
        """Energy of each kept state, in nats (norm) or logits (raw)."""
        return self.samples().column("energy").to_pylist()

    def to_pandas(self) -> pandas.DataFrame:
        """One row a kept state."""
        return self.samples().to_pandas()

    def __len__(self) -> int:
        """Number of kept states, up to the latest checkpoint."""
        return self.totals.samples

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The records of the kept states, one part in memory at a time."""
        for table in self._tables(SAMPLE_FOLDER):
            yield from table.to_pylist()

    def latest(self) -> list[dict[str, Any]]:
        """The records of the step that was kept last, one for each chain."""
        parts = () if self.checkpoint is None else self.checkpoint.parts
        last = next((part for part in reversed(parts) if part.file.startswith(f"{SAMPLE_FOLDER}/")), None)
        records = [] if last is None else _read_part(self.path, last).to_pylist()
        return [record for record in records if record["step"] == records[-1]["step"]]

    def to_arviz(self, start: int | None = None) -> arviz.InferenceData:
        """Kept states as ArviZ's plots expect them; see `maskropolis.convergence.inference_data.to_arviz`."""
        from maskropolis.convergence.inference_data import to_arviz

        return to_arviz(self, start)

    def write(self, path: str, overwrite: bool = False) -> None:
        """The records to `path`, Parquet if its suffix says so, else JSON lines. Raises `InputError` if it exists."""
        with open_records(str(path), overwrite) as write:
            for table in self._tables(SAMPLE_FOLDER):
                write(table.to_pylist())

    def _tables(self, folder: str) -> Iterator[pa.Table]:
        for part in () if self.checkpoint is None else self.checkpoint.parts:
            if part.file.startswith(f"{folder}/"):
                yield _read_part(self.path, part)


def open_run(path: str | Path) -> Run:
    """The run in the folder `path`, finished or not. Raises `RunError` if there is none or run.json is damaged."""
    folder = Path(path)
    description = read_description(folder)
    return Run(folder, description, next(checkpoints(folder, []), None))


def require_run(folder: Path) -> None:
    """Raises `RunError` if the folder is not there, holds nothing of a run, or leads out of itself by links."""
    require_own(folder, OWN)
    if not (folder / RUN_FILE).is_file() and not any((folder / CHECKPOINT_FOLDER).glob("*.json")):
        what = "holds no run (there is no run.json in it)" if folder.is_dir() else "does not exist"
        raise RunError(f"the run folder '{folder}' {what}; start one with `maskropolis sample --out {folder}`")


def read_description(folder: Path) -> dict[str, Any]:
    """The content of run.json. Raises `RunError` if it is missing, malformed or of another format."""
    require_run(folder)
    file = folder / RUN_FILE
    require_regular(file)
    try:
        description = read_json(file)
        known = description["format"]
    except (OSError, ValueError, KeyError):
        raise RunError(f"'{file}' is damaged; `maskropolis resume {folder}` restores it from the checkpoint") from None
    if known != FORMAT:
        raise RunError(
            f"'{file}' has format {known}; this version reads format {FORMAT}; use the version that wrote it"
        )
    return description


def _read_part(folder: Path, part: Part) -> pa.Table:
    try:
        content = inside(folder, part.file).read_bytes()
    except OSError as error:
        raise _damaged(folder, part, f"cannot be read ({error.strerror})") from None
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise _damaged(folder, part, "is damaged (its checksum differs)")
    # Without threads of its own: one that still lives when Python ends brings the process down.
    file = pyarrow.parquet.ParquetFile(pa.BufferReader(content), pre_buffer=False)
    return file.read(use_threads=False)


def _damaged(folder: Path, part: Part, what: str) -> RunError:
    return RunError(
        f"'{folder / part.file}' {what}; `maskropolis resume {folder}` goes back to the last good state and repeats it"
    )


def _joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema.empty_table()
