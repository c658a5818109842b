"""Records in and out of files: text, tables, FASTA and SMILES streamed in, results written without losing any.

Reading holds one line (or one batch of 1024 Parquet rows) at a time, and names the file and the line of whatever is
malformed. Writing refuses to replace a file unasked, and gives a file its name only once it is complete.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from maskropolis.errors import InputError, MaskropolisError, unknown_name

TABLES = ("jsonl", "csv", "tsv", "parquet")
ALPHABETS = ("text", "fasta", "smiles", "tokens")
FORMATS = ("text", *TABLES, *ALPHABETS[1:])
STANDARD = "-"
MOST_BYTES_A_LINE = 1 << 24
_PARQUET_ROWS = 1024

_SUFFIXES = {
    ".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".parquet": "parquet", ".pq": "parquet", ".fasta": "fasta", ".fa": "fasta", ".faa": "fasta", ".fas": "fasta",
    ".smi": "smiles", ".smiles": "smiles",
}  # fmt: skip
_NOT_TEXT = (".json", ".gz", ".bz2", ".xz", ".zst", ".zip", ".xlsx", ".xls", ".pdf", ".docx", ".safetensors", ".bin")


@dataclass(frozen=True)
class Record:
    """One sentence to work on, and where it came from.

    Attributes:
        text: the sentence; never empty.
        line: line or row number in its source, from 1.
        where: how an error names it, e.g. `books.txt, line 7`.
        prefix: context before the text, visible to the model but not scored.
        suffix: context after the text, likewise.
        other: the remaining fields of the record, carried along.
    """

    text: str
    line: int
    where: str
    prefix: str = ""
    suffix: str = ""
    other: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fields:
    """Which field or column holds what. `skip_empty` passes over records whose text is blank; `offer_skipping` says in
    the error that there is an option for that."""

    text: str = "text"
    prefix: str | None = None
    suffix: str | None = None
    skip_empty: bool = False
    offer_skipping: bool = True


def read_records(source: str, fields: Fields | None = None, format: str | None = None) -> Iterator[Record]:
    """Stream the records of the file `source`, or of standard input if it is `-`.

    `format` is one of `FORMATS`, by default told by the suffix (text for standard input and unknown suffixes). A table
    stays one under `fasta`, `smiles` and `tokens`, which then say what its text field holds. FASTA headers, and what
    follows a SMILES on its line, become the field `name` of `Record.other`. Raises `InputError` at once for a file that
    is not there or of no known format, and while streaming for malformed lines, bytes that are not UTF-8, missing
    fields and empty texts.
    """
    fields = fields or Fields()
    kind = _format_of(source, format)
    if source != STANDARD and not Path(source).is_file():
        what = "is a folder" if Path(source).is_dir() else "does not exist"
        raise InputError(f"the input '{source}' {what}; expected a file, or - for standard input")
    if kind not in TABLES and (fields.prefix or fields.suffix):
        raise InputError(f"a {kind} file has no fields for a prefix or suffix; use JSONL, CSV or Parquet")
    if kind == "parquet" and source == STANDARD:
        raise InputError("Parquet cannot be read from standard input; name the file")
    return _records(source, fields, _READERS[kind])


def alphabet_of(source: str | None, format: str | None) -> str:
    """Which of `ALPHABETS` the texts of `source` are in: what `format` or, without one, the suffix says, else text.

    Raises `InputError` for a format that there is not.
    """
    if format is not None and format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    kind = format if format is not None or source is None else _SUFFIXES.get(Path(source).suffix.lower())
    return kind if kind in ALPHABETS else "text"


def read_lines(source: str) -> Iterator[tuple[int, str]]:
    """(number, line) of a text file, also one that ends in .gz, or of standard input if `source` is `-`.

    Empty lines are lines too. Raises `InputError` at once if there is no such file, and for bytes that are not UTF-8.
    """
    if source != STANDARD and not Path(source).is_file():
        what = "is a folder" if Path(source).is_dir() else "does not exist"
        raise InputError(f"the input '{source}' {what}; expected a file, or - for standard input")
    return _text(source, Fields())


def _format_of(source: str, format: str | None) -> str:
    if format is not None:
        if format not in FORMATS:
            raise unknown_name("format", format, FORMATS)
        table = _SUFFIXES.get(Path(source).suffix.lower())
        return table if format in ALPHABETS[1:] and table in TABLES else format
    suffix = Path(source).suffix.lower()
    if suffix in _NOT_TEXT:
        raise InputError(
            f"cannot read '{source}': {suffix} is none of {', '.join(FORMATS)}; convert it or name --format"
        )
    return _SUFFIXES.get(suffix, "text")


def _records(
    source: str, fields: Fields, reader: Callable[[str, Fields], Iterator[tuple[int, Any]]]
) -> Iterator[Record]:
    """Give the raw (number, text or mapping) pairs of a reader their checks and names."""
    unit = "row" if reader is _parquet else "line"
    shown = "standard input" if source == STANDARD else source
    for line, raw in reader(source, fields):
        where = f"{shown}, {unit} {line}"
        if reader is _fasta and raw["name"]:
            where = f"{shown}, record '{raw['name'].split()[0]}'"
        values = {fields.text: raw} if isinstance(raw, str) else raw
        text = _string(values, fields.text, where, "--text-field")
        if not text.strip():
            if fields.skip_empty:
                continue
            hint = " (--skip-empty passes over such lines)" if fields.offer_skipping else "; remove it"
            raise InputError(f"{where} is empty; expected a sentence{hint}")
        prefix = _string(values, fields.prefix, where, "--prefix-field") if fields.prefix else ""
        suffix = _string(values, fields.suffix, where, "--suffix-field") if fields.suffix else ""
        used = {fields.text, fields.prefix, fields.suffix}
        other = {key: value for key, value in values.items() if key not in used}
        yield Record(text, line, where, prefix, suffix, other)


def _string(values: dict[str, Any], name: str, where: str, option: str) -> str:
    if name not in values:
        has = ", ".join(map(str, list(values)[:8])) or "none"
        raise InputError(f"{where} has no field '{name}'; its fields: {has}; choose one with {option}")
    value = values[name]
    if not isinstance(value, str):
        raise InputError(f"{where}: the field '{name}' is {_kind(value)}; expected text")
    return value


def _kind(value: Any) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


@contextlib.contextmanager
def _opened(source: str) -> Iterator[IO[bytes]]:
    if source == STANDARD:
        yield sys.stdin.buffer
        return
    with _open(Path(source), "rb") as stream:
        if Path(source).suffix != ".gz":
            yield stream
            return
        try:
            with gzip.open(stream) as unpacked:
                yield cast("IO[bytes]", unpacked)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"cannot unpack '{source}': {error}") from None


def _open(path: Path, mode: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise InputError(f"cannot open '{path}': {error.strerror}") from None


def _lines(source: str, stream: IO[bytes]) -> Iterator[tuple[int, str]]:
    """(number, line with its end) of a UTF-8 stream, a byte order mark dropped."""
    shown = "standard input" if source == STANDARD else source
    number = 0
    while line := stream.readline(MOST_BYTES_A_LINE + 1):
        number += 1
        if len(line) > MOST_BYTES_A_LINE:
            raise InputError(
                f"{shown}, line {number} is longer than {MOST_BYTES_A_LINE >> 20} MiB; is this a text file?"
            )
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x} at place {error.start + 1}"
            raise InputError(f"{shown}, line {number} is not valid UTF-8: {byte}; convert the file to UTF-8") from None


def _text(source: str, fields: Fields) -> Iterator[tuple[int, str]]:
    with _opened(source) as stream:
        for number, line in _lines(source, stream):
            yield number, line.rstrip("\r\n")


def _fasta(source: str, fields: Fields) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line of the header, name and joined sequence) of each record; lines that begin with ; are comments."""
    shown = "standard input" if source == STANDARD else source
    first, name = 0, ""
    parts: list[str] = []
    with _opened(source) as stream:
        for number, line in _lines(source, stream):
            line = line.strip()
            if line.startswith(">"):
                if first:
                    yield first, {"name": name, fields.text: "".join(parts)}
                first, name, parts = number, line[1:].strip(), []
            elif line and not line.startswith(";"):
                if not first:
                    raise InputError(
                        f"{shown}, line {number} comes before any header; expected FASTA: >NAME, then letters"
                    )
                parts.append("".join(line.split()))
    if first:
        yield first, {"name": name, fields.text: "".join(parts)}


def _smiles(source: str, fields: Fields) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, SMILES and the name that may follow it)."""
    for number, line in _text(source, fields):
        smiles, _, name = line.strip().replace("\t", " ", 1).partition(" ")
        yield number, {fields.text: smiles} | ({"name": name.strip()} if name.strip() else {})


def _jsonl(source: str, fields: Fields) -> Iterator[tuple[int, dict[str, Any]]]:
    shown = "standard input" if source == STANDARD else source
    with _opened(source) as stream:
        for number, line in _lines(source, stream):
            if fields.skip_empty and not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                reason = getattr(error, "msg", "") or str(error)
                raise InputError(f"{shown}, line {number} is not JSON: {reason}") from None
            if not isinstance(value, dict):
                raise InputError(f"{shown}, line {number} is {_kind(value)}; expected a JSON object with fields")
            yield number, value


def _csv(source: str, fields: Fields, delimiter: str = ",") -> Iterator[tuple[int, dict[str, Any]]]:
    shown = "standard input" if source == STANDARD else source
    with _opened(source) as stream:
        reader = csv.reader((line for _, line in _lines(source, stream)), delimiter=delimiter, strict=True)
        first, header = 1, None
        try:
            for row in reader:
                if header is None:
                    header = _header(row, shown)
                elif len(row) == len(header):
                    yield first, dict(zip(header, row, strict=True))
                elif row or not fields.skip_empty:
                    raise InputError(f"{shown}, line {first} has {len(row)} columns; the header has {len(header)}")
                first = reader.line_num + 1
        except csv.Error as error:
            raise InputError(f"{shown}, line {first} is malformed CSV: {error}") from None


def _header(row: list[str], shown: str) -> list[str]:
    twice = sorted({name for name in row if row.count(name) > 1})
    if twice:
        raise InputError(f"{shown} has the column '{twice[0]}' twice; expected a header of different names")
    return row


def _tsv(source: str, fields: Fields) -> Iterator[tuple[int, dict[str, Any]]]:
    yield from _csv(source, fields, delimiter="\t")


def _parquet(source: str, fields: Fields) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(source) as table:
            number = 0
            for batch in table.iter_batches(batch_size=_PARQUET_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"cannot read '{source}' as Parquet: {error}") from None


_READERS: dict[str, Callable[[str, Fields], Iterator[tuple[int, Any]]]] = {
    "text": _text, "tokens": _text, "fasta": _fasta, "smiles": _smiles,
    "jsonl": _jsonl, "csv": _csv, "tsv": _tsv, "parquet": _parquet,
}  # fmt: skip


@contextlib.contextmanager
def open_output(path: str, overwrite: bool = False) -> Iterator[IO[bytes]]:
    """A binary stream to the file `path`, or to standard output if it is `-`.

    The bytes go to `path.partial`, which becomes `path` when the block ends without an error. After an error the
    partial file stays, with everything written so far (the error says so), and `path` is as it was. Raises `InputError`
    if `path` or a partial file exists and `overwrite` is not set, or if its folder is not there.
    """
    if path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    check_output(path, overwrite)
    try:
        with _open(partial, "wb") as stream:
            yield stream
    except BaseException as error:
        if partial.exists() and not partial.stat().st_size:
            partial.unlink()
        elif isinstance(error, MaskropolisError) and partial.exists():
            error.args = (f"{error}; what was done before is in '{partial}'",)
        raise
    partial.replace(target)


def check_output(path: str, overwrite: bool = False, source: str | None = None) -> None:
    """Raise `InputError` if `open_output` would refuse, or would replace the input `source`: for a command to call
    before its work starts."""
    if path == STANDARD:
        return
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    if source is not None and target.exists() and Path(source).exists() and target.samefile(source):
        raise InputError(f"the output '{path}' is the input; name another file")
    if target.is_dir():
        raise InputError(f"the output '{path}' is a folder; expected the name of a file")
    if not target.parent.is_dir():
        raise InputError(f"the folder '{target.parent}' does not exist; create it first")
    if partial.is_symlink():
        raise InputError(f"'{partial}' is a symbolic link; remove it: nothing is written through one")
    if overwrite:
        return
    if target.exists():
        raise InputError(f"the output '{path}' exists; pass --overwrite to replace it")
    if partial.exists():
        can_go_on = partial.with_name(f"{partial.name}.json").exists()
        how = "go on with it by --resume, or pass --overwrite" if can_go_on else "move it, or pass --overwrite"
        raise InputError(f"'{partial}' holds the results of an unfinished run; {how}")


@contextlib.contextmanager
def open_records(path: str, overwrite: bool = False) -> Iterator[Callable[[Iterable[dict[str, Any]]], None]]:
    """A function that writes dictionaries to `path`: as Parquet, CSV, TSV, FASTA or SMILES if its suffix says so, else
    as JSON, one object a line.

    What one call writes has left the program when it returns; only Parquet is written 1024 rows at a time, and when
    the block ends, however it ends. Numbers that JSON lacks (infinities, NaN) become null. The columns of CSV are the
    fields of the first row, lists in it JSON. FASTA and SMILES take the fields `name` and `text`; numbers follow the
    name as `field=value`. See `open_output`.
    """
    kind, line = _written_as(path), row_format(path)
    with open_output(path, overwrite) as stream:
        if line is not None:
            yield lambda rows: _write_lines(stream, map(line, rows))
        elif kind == "parquet":
            with _parquet_writer(stream) as write:
                yield write
        else:
            yield _csv_writer(stream, "," if kind == "csv" else "\t")


def _written_as(path: str) -> str:
    return "jsonl" if path == STANDARD else _SUFFIXES.get(Path(path).suffix.lower(), "jsonl")


def row_format(path: str) -> Callable[[dict[str, Any]], str] | None:
    """How a record reads in the file `path`, where it has lines of its own; None for a table, which has a frame."""
    kind = _written_as(path)
    if kind in TABLES[1:]:
        return None
    return {"fasta": fasta_entry, "smiles": smiles_line}.get(kind, _json_line)


def _write_lines(stream: IO[bytes], lines: Iterable[str]) -> None:
    for line in lines:
        stream.write(line.encode("utf-8", "backslashreplace") + b"\n")
    stream.flush()


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(_finite(row), ensure_ascii=False, allow_nan=False, default=str)


def fasta_entry(row: dict[str, Any]) -> str:
    """`>name number=…` and the sequence in lines of 60 letters."""
    text = _text_of(row)
    return "\n".join([f">{_title(row)}", *(text[start : start + 60] for start in range(0, len(text), 60))])


def smiles_line(row: dict[str, Any]) -> str:
    """The SMILES, a tab, its name and numbers."""
    return f"{_text_of(row)}\t{_title(row)}".rstrip()


def _text_of(row: dict[str, Any]) -> str:
    if not isinstance(row.get("text"), str):
        raise InputError(
            "FASTA and SMILES files hold sequences; these results are a table: write .jsonl, .csv or .parquet"
        )
    return str(row["text"])


def _title(row: dict[str, Any]) -> str:
    """The name, or else the number of the chain or line, and the numbers of a row."""
    number = next((f"{key}_{row[key]}" for key in ("chain", "line") if key in row), "sequence")
    unshown = ("line", "tokens") if row.get("name") else ("line", "tokens", "chain")
    values = {key: row[key] for key in row if key not in unshown and type(row[key]) in (int, float)}
    shown = [f"{key}={value:.6g}" for key, value in values.items()]
    return " ".join([" ".join(str(row.get("name") or number).split()), *shown])


def _csv_writer(stream: IO[bytes], delimiter: str) -> Callable[[Iterable[dict[str, Any]]], None]:
    """The header is the fields of the first row. Raises `InputError` for a later row with other fields."""
    columns: list[str] = []

    def line(values: Iterable[Any]) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=delimiter, lineterminator="").writerow(list(values))
        return buffer.getvalue()

    def cell(value: Any) -> Any:
        return json.dumps(_finite(value), ensure_ascii=False, default=str) if isinstance(value, list | dict) else value

    def lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
        for row in rows:
            if not columns:
                columns.extend(row)
                yield line(columns)
            strange = [key for key in row if key not in columns]
            if strange:
                raise InputError(
                    f"the field '{strange[0]}' is not in the first row, which a CSV needs; write JSONL instead"
                )
            yield line(cell(row.get(column)) for column in columns)

    return lambda rows: _write_lines(stream, lines(rows))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


@contextlib.contextmanager
def _parquet_writer(stream: IO[bytes]) -> Iterator[Callable[[Iterable[dict[str, Any]]], None]]:
    """The schema is that of the first rows. The footer is written whatever happens, so a partial file can be read."""
    import pyarrow
    import pyarrow.parquet

    writer: pyarrow.parquet.ParquetWriter | None = None
    waiting: list[dict[str, Any]] = []

    def flush() -> None:
        nonlocal writer
        try:
            table = pyarrow.Table.from_pylist(waiting, schema=None if writer is None else writer.schema)
        except pyarrow.ArrowException as error:
            raise InputError(f"the fields do not fit one Parquet table: {error}; write JSONL instead") from None
        if writer is None:
            writer = pyarrow.parquet.ParquetWriter(stream, table.schema)
        writer.write_table(table)
        waiting.clear()

    def write(rows: Iterable[dict[str, Any]]) -> None:
        waiting.extend(rows)
        if len(waiting) >= _PARQUET_ROWS:
            flush()

    try:
        yield write
    finally:
        if waiting:
            flush()
        if writer is not None:
            writer.close()
