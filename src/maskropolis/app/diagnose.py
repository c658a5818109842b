"""`maskropolis diagnose`: whether a run has converged, in words and numbers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from maskropolis.convergence.diagnostics import Diagnosis, StartDiagnosis


def register(application: typer.Typer) -> None:
    application.command("diagnose")(diagnose)


def diagnose(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, also of a run that is still going on.")],
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON; - for stdout.")
    ] = None,
    netcdf: Annotated[
        str | None,
        typer.Option("--netcdf", metavar="FILE", help="Write the kept states for ArviZ, one file for each start."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")] = False,
) -> None:
    """Say whether a run has converged: R-hat, effective sample size, acceptance, distance moved.

    Statistics by ArviZ, of the energy and of the tokens at each position. Chains of different starts are judged apart.
    """
    from maskropolis.convergence.diagnostics import diagnose as diagnose_run
    from maskropolis.records import check_output
    from maskropolis.runs.folder import open_run
    from maskropolis.terminal import new_console

    for file in filter(None, (json_file, netcdf)):
        check_output(file, overwrite)
    opened = open_run(run)
    found = diagnose_run(opened)
    if json_file is not None:
        _write_json(json_file, found.to_json(), overwrite)
    if netcdf is not None:
        _write_netcdf(netcdf, opened, len(found.starts), overwrite)
    console = new_console(stderr=json_file == "-", highlight=False, width=None if sys.stdout.isatty() else 100)
    _print(console, found)


def _print(console: Console, found: Diagnosis) -> None:
    console.print(found.verdict, markup=False, style="bold")
    for start in found.starts:
        console.print()
        _print_start(console, start)
    console.print(f"\n{found.signature}", markup=False, style="dim")


def _print_start(console: Console, start: StartDiagnosis) -> None:
    from rich.table import Table
    from rich.text import Text

    title = f"{start.label}: {len(start.chains)} chains, {start.draws} kept states each"
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    table.add_column("quantity")
    for column in ("mean", "MCSE", "R-hat", "bulk ESS", "tail ESS"):
        table.add_column(column, justify="right")
    for quantity in start.quantities:
        numbers = (quantity.mean, quantity.mcse, quantity.r_hat)
        sizes = (quantity.ess_bulk, quantity.ess_tail)
        table.add_row(
            quantity.name, *(_number(value, ".3f") for value in numbers), *(_number(value, ".0f") for value in sizes)
        )
    console.print(table)
    for line in _lines(start):
        console.print(line, markup=False)


def _lines(start: StartDiagnosis) -> list[str]:
    moves = start.movement
    worst = sorted(moves.by_position.items(), key=lambda item: item[1])[:5]
    lines = [
        f"acceptance {moves.acceptance:.1%}; lowest at positions "
        + ", ".join(f"{position} ({share:.0%})" for position, share in worst),
        f"tokens changed per sweep {moves.changed_per_sweep:.2f}; "
        f"different sequences {moves.unique} of {moves.kept} kept",
        f"effective draws of the energy: {_number(start.ess_per_second, '.3g')} per second, "
        f"{_number(start.ess_per_1000_rows, '.3g')} per 1,000 model rows",
    ]
    if len(moves.by_temperature) > 1:
        low, high = moves.by_temperature[0], moves.by_temperature[-1]
        lines.append(f"acceptance by temperature: {low[1]:.0%} at τ {low[0]:.2g}, {high[1]:.0%} at τ {high[0]:.2g}")
    if start.source == "steps":
        lines.append("few states were kept, so the energy is judged from every step since burn-in")
    if start.frozen:
        lines.append(f"positions whose token never changed: {', '.join(map(str, start.frozen))}")
    if start.dropped:
        lines.append(f"chains that stopped early and are left out: {', '.join(map(str, start.dropped))}")
    return lines


def _number(value: float, form: str) -> str:
    return "–" if value != value else "∞" if value == float("inf") else format(value, form)


def _write_json(file: str, values: dict[str, Any], overwrite: bool) -> None:
    import json

    from maskropolis.records import open_output

    with open_output(file, overwrite) as stream:
        stream.write((json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def _write_netcdf(file: str, run: Any, starts: int, overwrite: bool) -> None:
    """One start: `file`; several: `stem-0.nc`, `stem-1.nc`, …"""
    from pathlib import Path

    from maskropolis.convergence.inference_data import save_netcdf, to_arviz
    from maskropolis.records import check_output

    target = Path(file)
    for number in range(starts):
        name = target if starts == 1 else target.with_name(f"{target.stem}-{number}{target.suffix or '.nc'}")
        check_output(str(name), overwrite)
        save_netcdf(to_arviz(run, number), name)
