"""Lines of text out of plain text, JSONL and Parquet files, one paragraph at a time, with every fault named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from maskropolis.errors import InputError

_ROWS = 1024  # rows of a Parquet file held in memory at a time


def find_files(paths: Sequence[str | Path]) -> list[Path]:
    """The text files named, and those below the folders named, in a fixed order. Raises `InputError`."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix in _READERS and p.is_file())
            if not inside:
                raise InputError(f"no text in the folder '{path}'; expected files ending {', '.join(_READERS)}")
            found.extend(inside)
        elif path.is_file():
            if path.suffix not in _READERS:
                raise InputError(f"'{path}' is of an unknown kind; expected a file ending {', '.join(_READERS)}")
            found.append(path)
        else:
            raise InputError(f"no file or folder '{path}'")
    return list(dict.fromkeys(found))


def read_lines(path: Path, column: str = "text") -> Iterator[str]:
    """Non-empty paragraphs of one file, white space at the ends removed. Raises `InputError` naming file and line."""
    for line in _READERS[path.suffix](path, column):
        line = line.strip()
        if line:
            yield line


def read_all(paths: Iterable[Path], column: str = "text") -> Iterator[str]:
    """The paragraphs of several files, one after the other."""
    for path in paths:
        yield from read_lines(path, column)


def _plain(path: Path, column: str) -> Iterator[str]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(f"{path}, line {number}: not UTF-8 text ({error.reason})") from None
            if "\0" in line:
                raise InputError(f"{path}, line {number}: a NUL character; this is not a text file")
            yield line


def _jsonl(path: Path, column: str) -> Iterator[str]:
    for number, line in enumerate(_plain(path, column), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}, line {number}: not JSON ({error.msg} at column {error.colno})") from None
        if not isinstance(row, dict) or column not in row:
            known = f"; it has {', '.join(map(repr, row))}" if isinstance(row, dict) else ""
            raise InputError(f"{path}, line {number}: no field '{column}'{known}; name one with --column")
        if not isinstance(row[column], str):
            raise InputError(f"{path}, line {number}: the field '{column}' is not a string")
        yield from row[column].splitlines()


def _parquet(path: Path, column: str) -> Iterator[str]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"'{path}' is not a readable Parquet file: {error}") from None
    with file:
        if column not in file.schema_arrow.names:
            known = ", ".join(map(repr, file.schema_arrow.names))
            raise InputError(f"'{path}' has no column '{column}'; it has {known}; name one with --column")
        number = 0
        for batch in file.iter_batches(batch_size=_ROWS, columns=[column]):
            for value in batch.column(0).to_pylist():
                number += 1
                if not isinstance(value, str):
                    raise InputError(f"{path}, row {number}: the column '{column}' is not a string")
                yield from value.splitlines()


_READERS: dict[str, Callable[[Path, str], Iterator[str]]] = {
    ".txt": _plain,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
