"""Files that are either whole or not there: written beside their name, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_file(path: Path, content: bytes) -> str:
    """Put `content` at `path`, replacing what is there in one instant. Returns its SHA-256. Raises `OSError`."""
    write_with(path, lambda partial: partial.write_bytes(content))
    return hashlib.sha256(content).hexdigest()


def write_with(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write(partial)` make a file, then give it the name `path`. Whatever happens, no partial file is left.

    A killed process can leave one; its name begins with a dot, which Parquet readers pass over, and
    `remove_partial_files` clears it away.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        _flush_to_disk(partial)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    _flush_to_disk(path.parent)


def _flush_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_partial_files(folder: Path) -> None:
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """SHA-256 of a file, 64 hexadecimal digits. Raises `OSError`."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def checksum_of(values: Any) -> str:
    """SHA-256 of a JSON value; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, values: dict[str, Any]) -> None:
    write_file(path, (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises `OSError`, or `ValueError` if it is malformed or no object."""
    values = json.loads(path.read_bytes())
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return values
