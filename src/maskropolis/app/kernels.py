"""`maskropolis kernels`: every way to move that the package has, with its settings."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import typer


def register(application: typer.Typer) -> None:
    application.command("kernels")(kernels)


def kernels() -> None:
    """List the kernels, whether they are exact, and their settings with defaults."""
    from maskropolis.kernels import KERNELS

    for name, kind in sorted(KERNELS.items()):
        label = "exact" if kind.exact else "no target"
        module = inspect.getmodule(kind)
        summary = (inspect.getdoc(module) or "").split("\n\n")[0].replace("\n", " ")
        typer.echo(f"{name} [{label}]  {summary}")
        for setting in _settings(kind()):
            typer.echo(f"    {setting}")


def _settings(kernel: Any) -> Iterator[str]:
    """`key=value` as `--kernel` takes it; a mixture shows its kernels with their weights."""
    for item in dataclasses.fields(kernel):
        value = getattr(kernel, item.name)
        if item.name == "proposal":
            yield "proposal_temperature=1.0"
            yield "top_k=none"
        elif item.name == "parts":
            yield from (f"{part.name}={weight:g}" for part, weight in zip(value, kernel.weights, strict=True))
        elif item.name not in ("energy", "weights"):
            yield f"{item.name}={_typed(value)}"


def _typed(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "/".join(f"{number:g}" for number in value) or "none"
    if hasattr(value, "step"):  # a kernel
        return str(value.signature())
    return str(getattr(value, "name", "none" if value is None else value))
