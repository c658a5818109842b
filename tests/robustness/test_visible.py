"""Control characters in text from models and files: visible on terminals and pages, untouched in files and pipes."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import maskropolis
from maskropolis import cli
from maskropolis.report import render
from maskropolis.terminal import guarded, new_console, visible

HOSTILE = "a\x1b]0;title\x07b\x1b[31mred\u202edlrow\u2066x\x9b1m\x7f\r"
BAD = [*"\x1b\x07\x9b\x7f\u202e\u2066"]


def test_visible() -> None:
    shown = visible(HOSTILE)
    assert not any(character in shown for character in [*BAD, "\r"])
    assert r"\x1b" in shown and r"\u202e" in shown and r"\x9b" in shown
    assert visible("plain\ttext\n東京 é 🙂") == "plain\ttext\n東京 é 🙂"
    assert visible("a\ud800") == r"a\ud800"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, pipe = Screen(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", pipe)
    with guarded():
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)
        sys.stdout.buffer.write(HOSTILE.encode())
        sys.stdout.writelines([HOSTILE])
        new_console(force_terminal=True, highlight=False).print(HOSTILE, style="bold", markup=False)
        new_console(stderr=True).print(HOSTILE, markup=False)
    assert sys.stdout is screen
    shown = screen.getvalue()
    assert shown.count(r"\u202e") == 4 and "\x1b[1m" in shown  # the console's own bold came through
    assert not any(character in shown.replace("\x1b[1m", "").replace("\x1b[0m", "") for character in BAD)
    assert pipe.getvalue().startswith(HOSTILE + "\n")


FASTA = f">name{HOSTILE.strip()}\nacdef\n"


def on_a_terminal(arguments: list[str], folder: Path) -> bytes:
    """Everything that the command line writes to a real pseudo-terminal, as standard output and standard error."""
    code = "import sys; from maskropolis import cli; sys.argv = ['maskropolis', *sys.argv[1:]]; cli.main()"
    main, side = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=side, stderr=side, stdin=side, cwd=folder)
    os.close(side)
    seen = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    child.wait()
    os.close(main)
    return seen


def test_a_real_terminal(tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "in.fasta").write_text(FASTA, encoding="utf-8")
    (tmp_path / "in.txt").write_text("the cat\x1b[31m\u202e sat\n", encoding="utf-8")
    for arguments in (
        ["score", "in.txt", "-m", str(tiny_folder)],
        ["sample", "--from", "in.fasta", "-m", str(tiny_folder), "--burn-in", "1"],
        ["score", f"missing{HOSTILE}.txt", "-m", str(tiny_folder)],
    ):
        seen = on_a_terminal(arguments, tmp_path).decode()
        assert "\u202e" not in seen and "\x1b]0;" not in seen and "\x1b[31m" not in seen, seen
        assert r"\x1b" in seen or r"\u202e" in seen


def test_pipes_are_left_alone(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    (tmp_path / "in.fasta").write_text(">a\u202eb\nacd\n", encoding="utf-8")
    monkeypatch.setattr(
        sys, "argv", ["m", "sample", "--from", str(tmp_path / "in.fasta"), "-m", str(tiny_folder), "--burn-in", "1"]
    )
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    assert "a\u202eb" in capfdbinary.readouterr().out.decode()


def test_pages(tiny_bert: Any) -> None:
    samples = maskropolis.sample(tiny_bert, length=3, chains=2, steps=30, seed=1)
    for record in samples.records:
        record["text"] = HOSTILE
    page = render(samples)
    assert r"\u202e" in page and not any(character in page for character in BAD)
