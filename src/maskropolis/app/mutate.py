"""`maskropolis mutate`: effects of mutations, and how sure a model is of each position."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskropolis.app import model_options as options
from maskropolis.errors import InputError

if TYPE_CHECKING:
    from maskropolis.mutation import MutantScore, Task
    from maskropolis.records import Record

_Mutants = list[tuple[str, dict[str, Any]]]


def register(application: typer.Typer) -> None:
    application.command("mutate")(mutate)


def mutate(
    source: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Wild types: .fasta, .smi, text, a table, or - .")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="A wild type, instead of FILE; repeatable.")] = None,
    mutants: Annotated[
        str | None,
        typer.Option(metavar="LIST|FILE", help="A23V,K45R:L3M or a file with a column 'mutant'. [default: all single]"),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="masked-marginals (default), wt-marginals, pll-difference; repeatable."),
    ] = None,
    entropy: Annotated[bool, typer.Option("--entropy", help="A line a position instead: entropy, likeliest.")] = False,
    to: Annotated[
        str | None, typer.Option(metavar="SET", help="Substitutes: amino, nucleotides, letters, =A,V or @FILE.")
    ] = None,
    first: Annotated[int, typer.Option(help="Number of the first position.")] = 1,
    text_field: Annotated[str, typer.Option(help="Column of FILE with the wild type, if it is a table.")] = "text",
    mutant_field: Annotated[str, typer.Option(help="Column of the file of mutants.")] = "mutant",
    top: Annotated[int | None, typer.Option(metavar="N", help="Shown: the N highest. [default: 20 of all]")] = None,
    format: options.Format = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Everything: .csv, .jsonl, .parquet, or - for JSON lines."),
    ] = None,
    heatmap: Annotated[str | None, typer.Option(metavar="FILE.html", help="A heat map of all point mutants.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    model: options.Model = None,
    tokenizer: options.Tokenizer = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
    token_budget: options.TokenBudget = None,
) -> None:
    """Score mutations of a protein, a molecule or any sequence; above 0 is likelier than the wild type.

    \b
    masked-marginals   sum of log p(mutant) - log p(wild type), mutated positions masked: one row a position
    wt-marginals       the same with nothing masked: one row in all
    pll-difference     PLL(mutant) - PLL(wild type): about a row a position for every mutant

    \b
    maskropolis mutate protein.fasta -m ./my-esm -o scan.csv --heatmap scan.html
    maskropolis mutate protein.fasta -m ./my-esm --mutants K2R,K2R:T3S --method pll-difference
    maskropolis mutate protein.fasta -m ./my-esm --entropy
    """
    from maskropolis.mutation import METHODS, require_methods
    from maskropolis.records import ALPHABETS, TABLES, alphabet_of, check_output

    methods = require_methods(method or METHODS[:1])
    if format is not None and format not in (*ALPHABETS, *TABLES):
        from maskropolis.errors import unknown_name

        raise unknown_name("format", format, ALPHABETS)
    if top is not None and top < 1:
        raise InputError(f"--top {top} is out of range; expected at least 1")
    _check(entropy, mutants, heatmap)
    for path in (output, heatmap):
        if path is not None:
            check_output(path, overwrite, source)
    records = _records(source, text, format, text_field)
    listed = None if mutants is None else _mutants(mutants, mutant_field)
    alphabet = alphabet_of(source, format)
    opened = options.open_model(
        model, tokenizer, device, dtype, allow_pickle, trust_remote_code, token_budget, alphabet
    )
    print(_signature(opened, methods, entropy, to), file=sys.stderr)
    if entropy:
        _positions(records, opened, to, first, top, output, overwrite)
    else:
        _scan(records, opened, listed, methods, to, first, top, output, heatmap, overwrite)


def _check(entropy: bool, mutants: str | None, heatmap: str | None) -> None:
    if entropy and (mutants or heatmap):
        raise InputError("--entropy lists positions; leave --mutants and --heatmap away")
    if heatmap is not None and mutants is not None:
        raise InputError("--heatmap shows all point mutants; leave --mutants away")
    if heatmap is not None and not heatmap.lower().endswith((".html", ".htm")):
        raise InputError(f"cannot draw '{heatmap}'; expected a name that ends in .html")


def _records(source: str | None, texts: list[str] | None, format: str | None, field: str) -> list[Record]:
    from maskropolis.records import Fields, Record, read_records

    if (source is None) == (not texts):
        raise InputError("expected either a FILE (- for standard input) or --text; see maskropolis mutate --help")
    if texts:
        return [Record(text, number, f"--text {number}") for number, text in enumerate(texts, start=1)]
    records = list(read_records(str(source), Fields(text=field), format))
    if not records:
        raise InputError(f"the input '{source}' holds no sequences; expected at least one")
    return records


def _mutants(given: str, column: str) -> _Mutants:
    """Notation and other columns of each mutant: of a table, lines of a text file, or a list on the command line."""
    from pathlib import Path

    from maskropolis.records import TABLES, Fields, read_records

    if given == "-" or Path(given).is_file():
        return [(record.text, record.other) for record in read_records(given, Fields(text=column))]
    if given.lower().endswith((".txt", *(f".{kind}" for kind in TABLES))):
        raise InputError(f"the list of mutants '{given}' does not exist; expected a file, or e.g. A23V,K45R:L3M")
    return [(part, {}) for part in given.split(",") if part.strip()]


def _names(record: Record) -> set[str]:
    """The whole header of a record and its first word."""
    name = str(record.other.get("name") or "")
    return {name, *name.split()[:1]}


def _of(record: Record, listed: _Mutants) -> _Mutants:
    """The mutants of one wild type: those that name it, and those that name none."""
    return [one for one in listed if not one[1].get("name") or one[1]["name"] in _names(record)]


def _require_owners(records: list[Record], listed: _Mutants) -> None:
    """Raises `InputError` if there are no mutants, or one names a wild type that there is not."""
    known = set().union(*map(_names, records))
    for mutant, other in listed:
        if other.get("name") and other["name"] not in known:
            raise InputError(f"the mutant {mutant} is of '{other['name']}', which is no record of the input")
    if not listed:
        raise InputError("the list of mutants is empty; expected e.g. A23V,K45R")


def _scan(
    records: list[Record],
    model: Any,
    listed: _Mutants | None,
    methods: tuple[str, ...],
    to: str | None,
    first: int,
    top: int | None,
    output: str | None,
    heatmap: str | None,
    overwrite: bool,
) -> None:
    from maskropolis.mutation import prepare, score_mutants
    from maskropolis.records import open_records

    chosen = [(record, None if listed is None else _of(record, listed)) for record in records]
    if listed is not None:
        _require_owners(records, listed)
    tasks = [prepare(record, model, some, to, first) for record, some in chosen if listed is None or some]
    if heatmap is not None and len(tasks) > 1:
        raise InputError(f"--heatmap shows one sequence; the input holds {len(tasks)}")
    rows = _announce(tasks, methods)
    found: list[MutantScore] = []
    with ExitStack() as stack:
        write = None if output is None else stack.enter_context(open_records(output, overwrite))
        observe = stack.enter_context(_progress(rows))
        stack.enter_context(_kept(output))
        for task in tasks:
            for score in score_mutants(task, model, methods, observe):
                if write is None or heatmap is not None:
                    found.append(score)
                if write is not None:
                    write([score.as_row()])
    if output is None:
        if top is not None or listed is None:
            found.sort(key=lambda score: -score.scores[methods[0]])
        _table([score.as_row() for score in found], top or (20 if listed is None else len(found)))
    if heatmap is not None:
        from maskropolis.report.heatmap import write_heatmap

        write_heatmap(heatmap, found, methods[0], overwrite)
        print(f"heat map in {heatmap}", file=sys.stderr)


def _announce(tasks: list[Task], methods: tuple[str, ...]) -> int:
    """What it will cost, on standard error."""
    mutants, tokens = sum(len(task.mutants) for task in tasks), sum(len(task.notation.tokens) for task in tasks)
    each = {method: sum(task.rows([method]) for task in tasks) for method in methods}
    shown = ", ".join(f"{rows} model rows ({method})" for method, rows in each.items())
    print(f"{mutants} mutants of {tokens} positions: {shown}", file=sys.stderr)
    return sum(each.values())


def _positions(
    records: list[Record], model: Any, to: str | None, first: int, top: int | None, output: str | None, overwrite: bool
) -> None:
    from maskropolis.mutation import score_positions
    from maskropolis.records import open_records

    listed: list[dict[str, Any]] = []
    with ExitStack() as stack:
        write = None if output is None else stack.enter_context(open_records(output, overwrite))
        observe = stack.enter_context(_progress(None))
        for record in records:
            rows = [score.as_row() for score in score_positions(record, model, to, first, observe=observe)]
            if write is None:
                listed += rows
            else:
                write(rows)
    if output is None:
        if top is not None:
            listed.sort(key=lambda row: -row["entropy"])
        _table(listed, top or len(listed))


def _table(rows: list[dict[str, Any]], most: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from maskropolis.terminal import new_console

    columns = [name for name in rows[0] if name != "line" or len({row["line"] for row in rows}) > 1]
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if isinstance(rows[0][name], int | float) else "left", no_wrap=True)
    for row in rows[:most]:
        values = (row[name] for name in columns)
        table.add_row(*(Text(f"{value:.3f}" if isinstance(value, float) else str(value)) for value in values))
    new_console(highlight=False, width=None if sys.stdout.isatty() else 200).print(table)
    if len(rows) > most:
        print(f"{most} of {len(rows)} shown, highest first; -o FILE.csv writes all", file=sys.stderr)


def _signature(model: Any, methods: tuple[str, ...], entropy: bool, to: str | None) -> str:
    from maskropolis import __version__

    parts = {
        "model": f"{model.name}@{model.fingerprint()[:12]}",
        "method": "entropy" if entropy else ",".join(methods),
        "format": model.codec.format,
        "dtype": model.dtype,
        "version": __version__,
    }
    if to is not None:
        parts["to"] = to
    return "maskropolis|" + "|".join(f"{key}:{value}" for key, value in parts.items())


@contextmanager
def _kept(output: str | None) -> Iterator[None]:
    """Says where the results are when Ctrl-C ends the work."""
    try:
        yield
    except KeyboardInterrupt:
        if output not in (None, "-"):
            print(f"what was done is in '{output}.partial'", file=sys.stderr)
        raise


@contextmanager
def _progress(rows: int | None) -> Iterator[Callable[[int], None]]:
    """A bar of model rows on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.progress import Progress

    from maskropolis.terminal import new_console

    with Progress(console=new_console(stderr=True), transient=True) as bar:
        task = bar.add_task("model rows", total=rows)
        yield lambda count: bar.advance(task, count)
