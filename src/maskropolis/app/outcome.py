"""What a sampling command says when it ends, and the exit code that says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from maskropolis.chains.samples import Samples
    from maskropolis.runs.folder import Run


def report(result: Samples | Run) -> None:
    """Warnings, acceptance, what the kernel remarks and the signature, on standard error.

    Exits with 128 + the signal that ended the run.
    """
    for notice in result.notices:
        typer.echo(f"warning: {notice}", err=True)
    if result.interrupted:
        count = f"{len(result)} sample{'' if len(result) == 1 else 's'}"
        typer.echo(f"interrupted after {result.steps} of {result.planned_steps} steps; kept {count}", err=True)
    typer.echo(f"accepted {result.acceptance_rate:.1%} of proposals, {result.rows} model rows", err=True)
    if result.totals.remark:
        typer.echo(result.totals.remark, err=True)
    typer.echo(result.signature, err=True)
    if result.stopped_by:
        raise typer.Exit(128 + result.stopped_by)


def show(records: Sequence[Mapping[str, Any]], format: str = "text") -> None:
    """Energy and text, one sample a line, on standard output; as `fasta`, records with the energy behind the name."""
    from maskropolis.records import fasta_entry

    for record in records:
        if format == "fasta":
            typer.echo(fasta_entry(dict(record)))
        else:
            typer.echo("  ".join([f"{record['energy']:9.3f}", record["text"], record.get("name", "")]).rstrip())


def named(records: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The records with the name of the text that their chain began with, if there are names."""
    return [{**record, "name": names[record["chain"] % len(names)]} for record in records] if names else records


def report_run(run: Run) -> None:
    """The states kept last, one of each chain, where everything is and how to go on, then `report`."""
    loaded = run.description["model"]["loaded_with"]
    show(named(run.latest(), run.config.get("names", ())), loaded.get("format", "text"))
    typer.echo(f"{len(run)} samples in {run.path}/samples, {run.steps} of {run.planned_steps} steps made", err=True)
    if run.interrupted:
        typer.echo(f"go on with: maskropolis resume {run.path}", err=True)
    report(run)
