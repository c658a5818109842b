"""What the tests with hostile input share: the command line, with an answer for every prompt, and what it may say."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from maskropolis import cli

MARKER = "it_ran"
"""A file that code leaves in the current folder if it is run."""


def command(monkeypatch: pytest.MonkeyPatch, capsys: Any, *arguments: str) -> tuple[int, str]:
    """(exit code, standard error) of the command line, with yes on standard input and nobody asked."""
    answers = io.TextIOWrapper(io.BytesIO(b"y\n" * 50))
    monkeypatch.setattr(sys, "stdin", answers)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a prompt was reached"))
    monkeypatch.setattr(sys, "argv", ["maskropolis", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0), capsys.readouterr().err


def refused(outcome: tuple[int, str], *words: str) -> None:
    code, err = outcome
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(lines) == 1, err
    assert "Traceback" not in err
    for word in words:
        assert word in lines[0]
    assert not Path(MARKER).exists()
