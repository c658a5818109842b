"""`maskropolis train mlm` as a person meets it."""

from __future__ import annotations

import sys

import pytest

from maskropolis import cli


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["maskropolis", "train", "mlm", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return exit_.value.code or 0


def test_a_run_from_nothing(monkeypatch, tmp_path, capsys, paragraphs):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(paragraphs[:60]))
    small = ["--steps", 3, "--length", 16, "--rows", 4, "--vocabulary-size", 300, "--hold-out", 0.3, "--threads", 1]
    arguments = [text, "-o", tmp_path / "out", "--init", "scratch:tiny", *small, "--rate-range", 0.1, 0.9]
    assert run(monkeypatch, *arguments) == 0
    said = capsys.readouterr()
    assert "saved" in said.out and "perplexity" in said.out and "maskropolis|objective" in said.out
    assert "held-out loss" in said.err
    assert run(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err.startswith("error: the folder")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.txt", "--init", "scratch:tiny"], "no file or folder 'none.txt'"),
        (["empty.txt", "--init", "scratch:tiny"], "no text"),
        (["text.txt", "--init", "scratch:giant"], "unknown size 'giant'"),
        (["text.txt", "--init", "scratch:tiny", "--mask-rate", 2], "mask rate is 2"),
        (["text.txt", "--init", "scratch:tiny", "--vocabulary-size", 20], "too small for the alphabet"),
        (["text.txt", "--init", "nowhere/at/all"], "no tokenizer for 'nowhere/at/all'"),
        (["text.txt", "--init", "scratch:tiny", "--threads", 0], "threads"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, tmp_path, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "text.txt").write_text("A line of text, to be sure.\n" * 50)
    assert run(monkeypatch, *arguments, "-o", "out") == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and says in error and "\n" not in error
