"""A text output of which a job that was stopped can write the rest: `path.partial` and beside it how far it got.

The lines go to `path.partial`, and after every portion `path.partial.json` says how many lines of the input are
answered and how many bytes are sure. When the job ends, the partial file becomes `path`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from maskropolis.errors import InputError, RunError
from maskropolis.records import STANDARD, check_output
from maskropolis.records.files import read_json, write_json


class LineOutput:
    """`done`: lines of the input that an earlier job answered. `write` adds lines and makes them sure."""

    def __init__(self, stream: IO[bytes], done: int, note: Path | None, signature: str) -> None:
        self.done, self._stream, self._note, self._signature = done, stream, note, signature
        self._lines = done

    def write(self, lines: Sequence[str], answered: int | None = None) -> None:
        """`answered`: how many lines of the input they answer, by default one each."""
        self._stream.write("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
        self._stream.flush()
        self._lines += len(lines) if answered is None else answered
        if self._note is not None:
            progress = {"signature": self._signature, "lines": self._lines, "bytes": self._stream.tell()}
            write_json(self._note, progress)


@contextlib.contextmanager
def open_lines(path: str, signature: str, *, resume: bool = False, overwrite: bool = False) -> Iterator[LineOutput]:
    """An output that becomes `path` when the block ends without an error; `-` is standard output.

    `signature` says how the lines are made. With `resume`, a partial output is gone on with; `InputError` if there is
    none or it was made in another way. Without, what is there is only replaced if `overwrite`.
    """
    if path == STANDARD:
        if resume:
            raise InputError("standard output cannot be resumed; name a file with --output")
        yield LineOutput(sys.stdout.buffer, 0, None, signature)
        return
    partial, note = _partial(path), _note(path)
    if not resume:
        check_output(path, overwrite)
        note.unlink(missing_ok=True)
    done, size = _progress(path, signature) if resume else (0, 0)
    with partial.open("r+b" if resume else "wb") as stream:
        stream.truncate(size)
        stream.seek(size)
        output = LineOutput(stream, done, note, signature)
        output.write([])
        yield output
    partial.replace(path)
    note.unlink(missing_ok=True)


def _partial(path: str) -> Path:
    return Path(path).with_name(Path(path).name + ".partial")


def _note(path: str) -> Path:
    return Path(path).with_name(Path(path).name + ".partial.json")


def _progress(path: str, signature: str) -> tuple[int, int]:
    """(lines, bytes) that are sure. Raises `InputError` or `RunError`."""
    partial, note = _partial(path), _note(path)
    if not partial.is_file() or not note.is_file():
        raise InputError(f"nothing to resume: '{partial}' is not there")
    try:
        found = read_json(note)
        lines, size, before = int(found["lines"]), int(found["bytes"]), str(found["signature"])
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"'{note}' is damaged: {error}; start anew with --overwrite") from None
    if before != signature:
        raise InputError(f"'{partial}' was made in another way ({before}); use the same options, or --overwrite")
    if partial.stat().st_size < size:
        raise RunError(f"'{partial}' is shorter than '{note}' says; start anew with --overwrite")
    return lines, size
