"""`maskropolis verify`: a certificate that every kernel samples what it claims, computed on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskropolis.app import model_options as options

if TYPE_CHECKING:
    from rich.console import Console

    from maskropolis.proof.certificate import Certificate
    from maskropolis.proof.situations import Situation

_REAL = "Real model"


def register(application: typer.Typer) -> None:
    application.command("verify")(verify)


def verify(
    model: options.Model = None,
    tokenizer: options.Tokenizer = None,
    template: Annotated[
        str | None,
        typer.Option("--template", "-t", metavar="TEXT", help="Two or three [MASK].", rich_help_panel=_REAL),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN[,TOKEN…]",
            help="What may stand at the masks; default: the likeliest.",
            rich_help_panel=_REAL,
        ),
    ] = None,
    shortlist: Annotated[int, typer.Option(help="How many of the likeliest tokens.", rich_help_panel=_REAL)] = 3,
    tables_only: Annotated[bool, typer.Option("--tables-only", help="Small tabular models only, no real one.")] = False,
    every: Annotated[bool, typer.Option("--all", help="A line for each energy and temperature.")] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write every certificate; - for stdout.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Certify every kernel against distributions that can be enumerated; exit 1 if an exact one is not.

    Full transition matrices are computed from the code that samples, on small tabular models and on a real model
    restricted to a template and a few tokens. Also measured: how far the model's masked conditionals are from those of
    one joint distribution.
    """
    import torch

    from maskropolis.proof.certificate import certify_all
    from maskropolis.proof.situations import real_situation, tabular_situations
    from maskropolis.records import check_output
    from maskropolis.terminal import new_console

    if json_file is not None:
        check_output(json_file, overwrite)
    console = new_console(stderr=json_file == "-", highlight=False, width=None if sys.stdout.isatty() else 110)
    situations = list(tabular_situations())
    if not tables_only:
        opened = options.open_model(
            model, tokenizer, device, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code
        )
        listed = tuple(token.strip() for token in tokens.split(",")) if tokens else ()
        chosen = template or (_TEMPLATE if model is None else None)
        situations.append(real_situation(opened, chosen, listed, shortlist))
    torch.set_num_threads(1)  # many small tables: threads would only wait for one another
    with torch.inference_mode():
        found = list(certify_all(situations))
        _print_table(console, found, every)
        if not tables_only:
            _print_consistency(console, opened, situations[-1])
    if json_file is not None:
        _write(json_file, [certificate.to_json() for certificate in found], overwrite)
    _conclude(console, found)


_TEMPLATE = "The [MASK] was very [MASK]."


def _print_table(console: Console, found: list[Certificate], every: bool) -> None:
    """One table for the tabular models, one for the real model."""
    from rich.markup import escape
    from rich.table import Table

    for title, part in _parts(found).items():
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("kernel", overflow="fold")
        if every:
            table.add_column("case")
        for column in ("|πP − π|", "TV", "spectral gap"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        for group in _groups(part, every):
            first = group[0]
            case = [escape(f"{first.model.removeprefix('tabular: ')}, {first.energy}, τ {first.temperature:g}")]
            table.add_row(escape(first.kernel), *(case if every else []), *_numbers(group))
        console.print(table, "")


def _parts(found: list[Certificate]) -> dict[str, list[Certificate]]:
    """Certificates by title."""
    parts: dict[str, list[Certificate]] = {}
    tables = {c.model for c in found if c.model.startswith("tabular")}
    for certificate in found:
        name = f"{len(tables)} tabular models" if certificate.model in tables else f"model {certificate.model}"
        parts.setdefault(name, []).append(certificate)
    titled = {}
    for name, part in parts.items():
        energies = " and ".join(sorted({c.energy for c in part}))
        temperatures = ", ".join(f"{t:g}" for t in sorted({c.temperature for c in part}))
        titled[f"Certificate: {name}, energies {energies}, τ {temperatures}"] = part
    return titled


def _groups(part: list[Certificate], every: bool) -> list[list[Certificate]]:
    """Certificates shown in one line: all of a kernel, or with `every` each its own."""
    groups: dict[Any, list[Certificate]] = {}
    for index, certificate in enumerate(part):
        groups.setdefault(index if every else certificate.kernel, []).append(certificate)
    return list(groups.values())


def _numbers(group: list[Certificate]) -> list[str]:
    """The largest error; of the total variation the largest, or the range where none is declared; range of the gap."""
    distances = [c.total_variation for c in group]
    return [
        f"{_worst([c.invariance_error for c in group]):.1e}",
        f"{_worst(distances):.1e}" if group[0].exact else _span(distances),
        _span([c.spectral_gap for c in group]),
        _verdict(group),
    ]


def _worst(values: list[float]) -> float:
    """The largest, NaN if there is one."""
    return float("nan") if any(value != value for value in values) else max(values)


def _span(values: list[float]) -> str:
    low, high = (f"{abs(value):.2g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} – {high}"


def _verdict(group: list[Certificate]) -> str:
    if any(c.problem for c in group):
        return "[bold red]cannot be certified[/]"
    if not all(c.holds for c in group):
        return "[bold red]NOT EXACT[/]"
    if not group[0].exact:
        return "[yellow]no target[/]"
    apart = max(c.classes for c in group) > 1
    return "[green]exact[/]" + (", but reducible" if apart else "")


def _print_consistency(console: Console, model: Any, situation: Situation) -> None:
    from rich.markup import escape

    from maskropolis.proof.consistency import discrepancies

    narrow: Any = situation.model
    shortlist = narrow.allowed.nonzero()[:, 0]
    found = discrepancies(narrow, situation.states.rows(shortlist[:1]), shortlist)
    worst = found[0]
    ids = narrow.kept.tolist()

    def piece(token: int) -> str:
        return str(model.codec.pieces([ids[token]])[0])

    row = [piece(t) if t < len(ids) else "…" for t in worst.context]
    i, j = worst.positions
    row[i], row[j] = "‹i›", "‹j›"
    a, other_a, b, other_b = map(piece, worst.tokens)
    left, right = worst.log_odds_ratios
    console.print(
        f"\nMasked conditionals of {escape(model.name)} against one joint distribution: log odds ratio of "
        f"{escape(f'{a}/{other_a} at i and {b}/{other_b} at j')} in “{escape(' '.join(row))}”"
    )
    console.print(f"  composed from p(i | j): {left:+.3f} nats, from p(j | i): {right:+.3f} nats")
    console.print(
        f"  discrepancy {worst.largest:.3f} nats at the worst pair (median {worst.median:.3f}); it would be 0 if the "
        "conditionals belonged\n  to one joint distribution. So Gibbs has no declared target, and exact kernels "
        "correct by an energy."
    )


def _write(file: str, values: list[dict[str, Any]], overwrite: bool) -> None:
    import json

    from maskropolis.records import open_output

    with open_output(file, overwrite) as stream:
        stream.write((json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode())


def _conclude(console: Console, found: list[Certificate]) -> None:
    """One sentence; exit code 1 if a certificate does not hold."""
    from maskropolis.proof.certificate import TOLERANCE

    wrong = [certificate for certificate in found if not certificate.holds]
    exact = [c for c in found if c.exact and c.holds]
    if not wrong:
        largest = max(c.invariance_error for c in exact)
        names = {c.kernel for c in exact}
        console.print(
            f"\n{len(names)} exact kernels and variants leave their targets invariant in {len(exact)} cases: "
            f"largest error {largest:.1e} (tolerance {TOLERANCE:.0e})."
        )
        return
    for certificate in wrong:
        what = certificate.problem or f"declared exact, but |πP − π| = {certificate.invariance_error:.2e}"
        if not certificate.problem and certificate.invariance_error <= TOLERANCE:
            what = f"does not reach every state ({certificate.classes} closed classes)"
        console.print(
            f"FAILED {certificate.kernel} on {certificate.model} ({certificate.energy}, τ "
            f"{certificate.temperature:g}): {what}",
            markup=False,
        )
    raise typer.Exit(1)
