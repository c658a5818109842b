"""The command line as `python -m maskropolis`."""

from __future__ import annotations

import subprocess
import sys

import maskropolis


def test_the_module_is_the_command() -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "maskropolis", *arguments], capture_output=True, text=True)

    assert maskropolis.__version__ in call("--version").stdout
    wrong = call("translate", "--model", "nowhere")
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1
