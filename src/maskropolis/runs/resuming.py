"""Finds the last good state of a run folder, and clears away what came after it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from maskropolis.chains.steering import Steering
from maskropolis.errors import RunError
from maskropolis.records.files import checksum_of, remove_partial_files
from maskropolis.records.inside import require_own
from maskropolis.runs.checkpoint import FOLDER, Checkpoint, checkpoints, damage, discard_after
from maskropolis.runs.folder import OWN, RUN_FILE, SAMPLE_FOLDER, TRACE_FOLDER, read_description
from maskropolis.runs.lock import LOCK_NAME
from maskropolis.runs.recorder import CHANGING


class Found(NamedTuple):
    """What a run can go on from.

    Attributes:
        description: the content of run.json.
        checkpoint: the newest whose files are all good; None to begin anew.
        notices: which files were damaged, and what was done about it.
    """

    description: dict[str, Any]
    checkpoint: Checkpoint | None
    notices: list[str]


def last_good(folder: Path) -> Found:
    """Read only: nothing is removed yet. Raises `RunError` if there is no run, or nothing of it can be used."""
    damaged: list[str] = []
    checkpoint = None
    for candidate in checkpoints(folder, damaged):
        bad = damage(folder, candidate)
        if not bad:
            checkpoint = candidate
            break
        damaged += [name for name in bad if name not in damaged]
    if damaged:
        place = f"the state after step {checkpoint.step}" if checkpoint else "the start of the run"
        damaged = [f"damaged (checksum differs): {', '.join(damaged)}; going back to {place}"]
    try:
        description = read_description(folder)
    except RunError:
        if checkpoint is None:
            raise
        description = _restored(checkpoint)
        damaged.append(f"{RUN_FILE} is damaged; restored from the checkpoint after step {checkpoint.step}")
    if checkpoint is not None:
        _require_unchanged(folder, description, checkpoint)
    return Found(description, checkpoint, damaged)


def _restored(checkpoint: Checkpoint) -> dict[str, Any]:
    changing = {key: None for key in CHANGING} | {"status": "interrupted", "step": checkpoint.step}
    return checkpoint.description | changing | {"steps": checkpoint.planned}


def _require_unchanged(folder: Path, description: dict[str, Any], checkpoint: Checkpoint) -> None:
    for key, value in checkpoint.description.items():
        if key not in CHANGING and checksum_of(description.get(key)) != checksum_of(value):
            raise RunError(
                f"'{key}' in '{folder / RUN_FILE}' was changed since the run started; restore it, or start a new run"
            )


def require_trusted(folder: Path, description: dict[str, Any], trusted: bool) -> None:
    """Raises `RunError` if going on would import code that the run names, and nobody has said that it may."""
    config = description.get("config")
    experts = config.get("experts", ()) if isinstance(config, dict) else ()
    named = Steering(tuple(experts)).code if isinstance(experts, list | tuple) else ()
    if named and not trusted:
        raise RunError(
            f"the run '{folder}' wants to call the function '{named[0]}' of a module on this machine; "
            "read it, then pass --trust-run-code (in Python trust_run_code=True) if you trust it"
        )


def discard(folder: Path, checkpoint: Checkpoint | None) -> None:
    """Remove parts and checkpoints that came after `checkpoint` (all of them if None), and partial files."""
    keep = set() if checkpoint is None else {part.file for part in checkpoint.parts}
    discard_after(folder, 0 if checkpoint is None else checkpoint.step)
    for name in (SAMPLE_FOLDER, TRACE_FOLDER):
        for path in (folder / name).glob("part-*.parquet"):
            if f"{name}/{path.name}" not in keep:
                path.unlink(missing_ok=True)
    for place in (folder, folder / FOLDER, folder / SAMPLE_FOLDER, folder / TRACE_FOLDER):
        remove_partial_files(place)


def require_free(folder: Path, overwrite: bool) -> None:
    """Raises `RunError` if `folder` cannot take a new run: it holds one (unless `overwrite`) or other files."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"'{folder}' is a file; expected the name of a folder for the run")
    if not folder.parent.is_dir():
        raise RunError(f"the folder '{folder.parent}' does not exist; create it first")
    if not folder.is_dir():
        return
    require_own(folder, OWN)
    ours = {RUN_FILE, LOCK_NAME, FOLDER, SAMPLE_FOLDER, TRACE_FOLDER, f".{RUN_FILE}.partial"}
    others = sorted(path.name for path in folder.iterdir() if path.name not in ours)
    if (folder / RUN_FILE).exists():
        if not overwrite:
            raise RunError(
                f"'{folder}' already holds a run; go on with it by `maskropolis resume {folder}`, "
                "or replace it with --overwrite"
            )
    elif others:
        raise RunError(f"the folder '{folder}' is not empty ('{others[0]}') and holds no run; name a new folder")


def clear(folder: Path) -> None:
    """Remove the run in `folder`, but for the lock and for files that are not a run's. run.json goes first.

    Raises `RunError` if a part of it is a link, through which nothing is removed.
    """
    require_own(folder, OWN)
    with contextlib.suppress(FileNotFoundError):
        (folder / RUN_FILE).unlink()
    for name in (FOLDER, SAMPLE_FOLDER, TRACE_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
