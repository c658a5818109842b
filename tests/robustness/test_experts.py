"""Experts that are malformed or misbehave: one line, never a silent end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hostile import command, refused

EXPERTS = {
    "length:²:1": "number of words",
    f"length:{'9' * 5000}:1": "number of words",
    f"regex:{'(' * 500 + ')' * 500}:1": "nested too deep",
    "regex:(:1": "malformed",
    "python:broken:energy:1": "ZeroDivisionError",
    "python:leaving:energy:1": "SystemExit",
    "python:later:energy:1": "SystemExit",
    "python:unwritten:energy:1": "cannot import",
    "python:syntax:energy:1": "SyntaxError",
    "python:.relative:energy:1": "cannot import",
}


@pytest.mark.parametrize("expert", EXPERTS, ids=lambda text: text[:24])
def test_experts(expert: str, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("1 / 0\n")
    Path("leaving.py").write_text("import sys\nsys.exit(0)\n")
    Path("later.py").write_text("import sys\ndef energy(texts):\n    sys.exit(0)\n")
    Path("syntax.py").write_text("def energy(\n")
    outcome = command(monkeypatch, capsys, "sample", "-m", str(tiny_folder), "--length", "3", "--expert", expert)
    refused(outcome, EXPERTS[expert])
