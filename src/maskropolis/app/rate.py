"""`maskropolis rate`: blinded sheets for human raters out, their answers in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskropolis.app.commands import Commands
from maskropolis.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from maskropolis.evaluation.rating.agreement import Ratings
    from maskropolis.evaluation.rating.blinding import Question

group = Commands(
    help="Human ratings: blinded sheets out (export), answers in (import).", no_args_is_help=True, rich_markup_mode=None
)


def register(application: typer.Typer) -> None:
    application.add_typer(group, name="rate")


@group.command("export")
def export(
    samples: Annotated[
        list[str],
        typer.Argument(metavar="SAMPLES…", help="One a system: text, .jsonl, .csv, .tsv, .parquet, or a run folder."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for sheets and key; new or empty.")],
    per_system: Annotated[int, typer.Option(help="Sentences of each system.")] = 50,
    raters: Annotated[int, typer.Option(help="Sheets, each with all sentences in an order of its own.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the choice, the codes and the orders.")] = 0,
    aligned: Annotated[
        bool, typer.Option("--aligned", help="Line n of every file belongs together: the same lines are drawn.")
    ] = False,
    question: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TEXT", help="Instead of fluency and coherence; repeatable.")
    ] = None,
    scale: Annotated[int, typer.Option(help="Answers go from 1 to this.")] = 3,
    last: Annotated[bool, typer.Option("--last", help="Of a run folder only the last state of each chain.")] = False,
    format: Annotated[str | None, typer.Option(help="text, jsonl, csv, tsv or parquet; else by suffix.")] = None,
    text_field: Annotated[str, typer.Option(help="Field or column that holds the sentence.")] = "text",
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Pass over empty sentences.")] = False,
) -> None:
    """Write blinded, shuffled, balanced sheets (CSV and an HTML form for each rater), and a key to keep apart.

    \b
    maskropolis rate export run-a run-b --per-system 50 --raters 3 --seed 0 --out study
    """
    from maskropolis.evaluation.rating.blinding import QUESTIONS, design
    from maskropolis.evaluation.rating.sheets import KEY_FILE, SHEET_FOLDER, columns
    from maskropolis.evaluation.rating.sheets import export as write
    from maskropolis.evaluation.systems import read_systems
    from maskropolis.records import Fields

    systems = read_systems(samples, Fields(text_field, skip_empty=skip_empty), format, last)
    questions = [_question(text) for text in question] if question else QUESTIONS
    study = design(
        systems, per_system=per_system, raters=raters, seed=seed, aligned=aligned, questions=questions, scale=scale
    )
    write(study, out)
    print(f"{raters} sheets of {len(study.items)} sentences in {out / SHEET_FOLDER}: give each rater a .csv or .html")
    print(f"columns to fill: {', '.join(columns(study)[3:])}, from 1 to {scale}")
    print(f"the key, not for raters: {out / KEY_FILE}")


def _question(text: str) -> Question:
    from maskropolis.evaluation.rating.blinding import QUESTIONS, Question

    name, equals, words = text.partition("=")
    known = next((question for question in QUESTIONS if question.name == name), None)
    if known is not None and not equals:
        return known
    if not words.strip():
        raise InputError(f"the question '{text}' has no text; expected NAME=TEXT, fluency or coherence")
    return Question(name.strip(), words.strip())


@group.command("import")
def import_(
    sheets: Annotated[list[str], typer.Argument(metavar="SHEETS…", help="The filled CSV files.")],
    key: Annotated[str, typer.Option(metavar="FILE|DIR", help="The key of the export, or its folder.")],
    resamples: Annotated[int, typer.Option(help="Resamples behind each confidence interval.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON; - for stdout.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
) -> None:
    """Means of each system, agreement of the raters and paired tests, from complete sheets.

    Sheets with missing or out-of-range answers are named, and nothing is computed.

    \b
    maskropolis rate import answers-rater-*.csv --key study
    """
    from maskropolis.evaluation.intervals import Resampling
    from maskropolis.evaluation.rating.agreement import ratings
    from maskropolis.evaluation.rating.sheets import read_answers, read_key
    from maskropolis.records import check_output, open_output

    if json_file is not None:
        check_output(json_file, overwrite)
    resampling = Resampling(resamples, confidence, seed)
    study = read_key(key)
    found = ratings(study, read_answers(sheets, study), resampling)
    if json_file is not None:
        with open_output(json_file, overwrite) as stream:
            stream.write((json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n").encode())
    _print(found, len(study.orders), json_file == "-")


def _print(found: Ratings, raters: int, to_stderr: bool) -> None:
    from maskropolis.terminal import new_console

    width = None if (sys.stderr if to_stderr else sys.stdout).isatty() else 120
    console = new_console(stderr=to_stderr, highlight=False, width=width)
    console.print(_means(found))
    console.print()
    console.print(_comparisons(found))
    if len(found.raters) < raters:
        console.print(f"note: {len(found.raters)} of {raters} sheets were given", markup=False)
    if any(value != value for value in found.alpha.values()):
        console.print("note: alpha needs two raters and answers that are not all the same", markup=False)
    console.print(f"\n{found.signature}", markup=False, style="dim", soft_wrap=True)


def _means(found: Ratings) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("mean answer")
    for question in found.means:
        table.add_column(Text(question), justify="right")
    for system in next(iter(found.means.values())):
        cells = [found.means[question][system] for question in found.means]
        shown = [f"{c.value:.2f}{_interval(c.low, c.high)}" for c in cells]
        table.add_row(Text(system), *shown)
    table.add_row("Krippendorff's alpha", *(f"{_or_dash(value)}" for value in found.alpha.values()))
    return table


def _comparisons(found: Ratings) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("question", "paired difference", "mean", "p", "p (Holm)"):
        table.add_column(name, justify="left" if name in ("question", "paired difference") else "right")
    for one in found.comparisons:
        difference = f"{one.difference.value:+.2f}{_interval(one.difference.low, one.difference.high, '+')}"
        pair = Text(f"{one.first} − {one.second}")
        table.add_row(Text(one.question), pair, difference, _or_dash(one.p, ".4f"), _or_dash(one.holm, ".4f"))
    return table


def _interval(low: float, high: float, sign: str = "") -> str:
    return "" if low != low else f" ({low:{sign}.2f} to {high:{sign}.2f})"


def _or_dash(value: float, form: str = ".3f") -> str:
    return "–" if value != value else format(value, form)
