"""The folder a training run writes to: free, resumed or overwritten, held by one process, with a record of the run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maskropolis.errors import RunError
from maskropolis.records.files import read_json, remove_partial_files, write_json
from maskropolis.records.inside import require_own
from maskropolis.runs.lock import LOCK_NAME, is_locked, locked
from maskropolis.training.checkpoint import disk_error

RECORD = "training.json"
_WHILE_RUNNING = {"running", "interrupted", "failed"}


@contextmanager
def claimed(folder: Path, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Hold `folder` while training. Raises `RunError` if it is in use, or full and neither flag was given."""
    _refuse_file(folder)
    if folder.is_dir():
        require_own(folder, (path.name for path in folder.iterdir()))
    if is_locked(folder):
        raise RunError(f"the folder '{folder}' is in use by a running process; wait for it, or choose another --output")
    present = [path for path in folder.iterdir() if path.name != LOCK_NAME] if folder.is_dir() else []
    if resume and not (folder / RECORD).is_file():
        raise RunError(f"nothing to resume: '{folder}' holds no training run")
    if present and not resume:
        _clear(folder, overwrite)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from None
    with locked(folder):
        remove_partial_files(folder)
        yield folder


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"'{folder}' is a file; expected the name of a folder for the model")


def _clear(folder: Path, overwrite: bool) -> None:
    """Empties the folder of an earlier run; refuses folders that hold anything else."""
    ours = (folder / RECORD).is_file()
    if not ours:
        raise RunError(f"the folder '{folder}' is not empty and holds no training run; choose another --output")
    if not overwrite:
        raise RunError(f"the folder '{folder}' holds a training run; --resume goes on, --overwrite replaces it")
    shutil.rmtree(folder)


def empty(folder: Path) -> None:
    """Removes all from a folder that this process holds, but the lock."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK_NAME:
            path.unlink()


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """`training.json`: what was asked for, of what, with which versions, and how far it got. Raises `RunError`."""
    try:
        write_json(folder / RECORD, record)
    except OSError as error:
        raise disk_error(folder / RECORD, error) from None


def read_record(folder: Path) -> dict[str, Any]:
    """Raises `RunError` if it is damaged."""
    try:
        return read_json(folder / RECORD)
    except (OSError, ValueError) as error:
        raise RunError(f"'{folder / RECORD}' is damaged: {error}") from None


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The keys whose values differ: a run may only be resumed with the options that it was started with."""
    return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
