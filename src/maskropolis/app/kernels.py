"""`maskropolis kernels`: every way to move that the package has, with its settings."""

from __future__ import annotations

import dataclasses
import inspect

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
        for item in dataclasses.fields(kind):
            if item.name == "proposal":
                typer.echo("    proposal_temperature=1.0\n    top_k=none")
            elif item.name != "energy":
                typer.echo(f"    {item.name}={item.default}")
