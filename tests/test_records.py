"""Reading and writing records: every malformed line is named, nothing is lost."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from maskropolis.errors import InputError
from maskropolis.records import Fields, open_output, open_records, read_records


def texts(path: Path, *arguments: Any) -> list[str]:
    return [record.text for record in read_records(str(path), *arguments)]


def write(tmp_path: Path, name: str, content: bytes | str) -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\ufeffone\r\ntwo \u2028 still two\nthree")
    records = list(read_records(str(path)))
    assert [record.text for record in records] == ["one", "two \u2028 still two", "three"]
    assert records[2].where == f"{path}, line 3" and records[2].line == 3


def test_unknown_suffixes_are_text_and_formats_can_be_named(tmp_path: Path) -> None:
    assert texts(write(tmp_path, "train.en", "one\n")) == ["one"]
    assert texts(write(tmp_path, "b.en", '{"text": "one"}\n'), None, "jsonl") == ["one"]


def test_fields_are_carried(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "b", "p": "a", "s": "c", "id": [1]}\n')
    (record,) = read_records(str(path), Fields("text", "p", "s"))
    assert (record.prefix, record.text, record.suffix, record.other) == ("a", "b", "c", {"id": [1]})


def test_csv_over_several_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,n\n"one\nmore",1\ntwo,2\n')
    assert [(record.text, record.line) for record in read_records(str(path))] == [("one\nmore", 2), ("two", 4)]
    assert texts(write(tmp_path, "a.tsv", "text\tn\none, more\t1\n")) == ["one, more"]


def test_skipping_empty(tmp_path: Path) -> None:
    skip = Fields(skip_empty=True)
    assert texts(write(tmp_path, "a.txt", "one\n\n  \ntwo\n"), skip) == ["one", "two"]
    assert texts(write(tmp_path, "a.jsonl", '{"text": "one"}\n\n{"text": " "}\n'), skip) == ["one"]
    assert texts(write(tmp_path, "a.csv", "text,n\none,1\n\n"), skip) == ["one"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"one\n\xff\xfe\n", r"line 2 is not valid UTF-8: byte 0xff at place 1"),
        ("a.txt", b"one\n\n", r"line 2 is empty"),
        ("a.jsonl", '{"text": "one"}\n{"text": "two"\n', r"line 2 is not JSON"),
        ("a.jsonl", "[" * 100_000, r"line 1 is not JSON"),
        ("a.jsonl", '["one"]\n', r"line 1 is of type list; expected a JSON object"),
        ("a.jsonl", '{"txt": "one"}\n', r"line 1 has no field 'text'; its fields: txt; choose one with --text-field"),
        ("a.jsonl", '{"text": null}\n', r"the field 'text' is null; expected text"),
        ("a.jsonl", '{"text": 3}\n', r"the field 'text' is of type int"),
        ("a.csv", "a,b\n1,2\n", r"has no field 'text'; its fields: a, b"),
        ("a.csv", "text,n\none\n", r"line 2 has 1 columns; the header has 2"),
        ("a.csv", "text,n\none,2,3\n", r"line 2 has 3 columns"),
        ("a.csv", 'text,n\none,1\n"two,2\n', r"line 3 is malformed CSV"),
        ("a.csv", "text,text\none,1\n", r"the column 'text' twice"),
        ("a.csv", b"text\n\xe4\n", r"line 2 is not valid UTF-8"),
        ("a.parquet", "PAR1 not at all", r"cannot read '.*a.parquet' as Parquet"),
        ("a.json", "{}", r"\.json is none of text, jsonl"),
        ("a.txt.gz", "", r"\.gz is none of"),
    ],
)
def test_malformed(tmp_path: Path, name: str, content: bytes | str, message: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(InputError, match=message) as caught:
        list(read_records(str(path)))
    assert "\n" not in str(caught.value)


def test_a_line_too_long_to_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskropolis.records.MOST_BYTES_A_LINE", 1 << 20)
    with pytest.raises(InputError, match="line 1 is longer than 1 MiB"):
        list(read_records(str(write(tmp_path, "a.txt", b"x" * (1 << 20) + b"x"))))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n\xff\n")))
    records = read_records("-")
    assert next(records).text == "one"
    with pytest.raises(InputError, match="standard input, line 2 is not valid UTF-8"):
        next(records)
    with pytest.raises(InputError, match="Parquet cannot be read from standard input"):
        read_records("-", None, "parquet")


def test_missing_input_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_records(str(tmp_path / "nothing.txt"))
    with pytest.raises(InputError, match="no fields for a prefix"):
        read_records(str(write(tmp_path, "a.txt", "x")), Fields(prefix="p"))


def test_output_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with open_output(str(path)) as stream:
        stream.write(b"one")
        assert not path.exists()
    assert path.read_bytes() == b"one"
    with pytest.raises(InputError, match="--overwrite"), open_output(str(path)):
        pass
    with pytest.raises(RuntimeError), open_output(str(path), overwrite=True) as stream:
        stream.write(b"two")
        raise RuntimeError
    assert path.read_bytes() == b"one" and (tmp_path / "out.txt.partial").read_bytes() == b"two"


def test_an_error_says_where_the_results_are(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with pytest.raises(InputError, match=r"too long; what was done before is in '.*out.txt.partial'"):  # noqa: SIM117
        with open_output(str(path)) as stream:
            stream.write(b"one")
            raise InputError("too long")
    path.with_name("out.txt.partial").unlink()
    with pytest.raises(InputError, match=r"too long$"), open_output(str(path)):
        raise InputError("too long")
    assert not list(tmp_path.iterdir())


def test_records_as_json_and_parquet(tmp_path: Path) -> None:
    rows = [{"text": "ä", "x": 1.5, "list": [float("inf")]}, {"text": "b", "x": float("nan"), "list": [2.0]}]
    with open_records(str(tmp_path / "a.jsonl")) as out:
        out(rows)
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == {"text": "ä", "x": 1.5, "list": [None]}
    assert json.loads(lines[1])["x"] is None
    with pytest.raises(RuntimeError), open_records(str(tmp_path / "a.parquet")) as out:
        out(rows)
        raise RuntimeError
    assert texts(tmp_path / "a.parquet.partial", None, "parquet") == ["ä", "b"]
