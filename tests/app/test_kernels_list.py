"""The list of kernels says what can be typed: every default it shows builds the kernel it stands under."""

from __future__ import annotations

from dataclasses import replace

from typer.testing import CliRunner

from maskropolis.app.kernels import _settings
from maskropolis.cli import application
from maskropolis.kernels import KERNELS
from maskropolis.kernels.specification import build_kernel
from maskropolis.targets.energy import NORM


def test_what_is_shown_can_be_typed() -> None:
    shown = CliRunner().invoke(application, ["kernels"])
    assert shown.exit_code == 0
    assert "object at" not in shown.output
    assert "MISSING" not in shown.output
    for name, kind in KERNELS.items():
        assert f"{name} [{'exact' if kind.exact else 'no target'}]" in shown.output
        given = [setting for setting in _settings(kind()) if not setting.endswith(("=none", "="))]
        assert replace(build_kernel(f"{name}:{','.join(given)}", NORM), energy=NORM) == replace(kind(), energy=NORM)
