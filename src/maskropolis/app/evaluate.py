"""`maskropolis evaluate`: how good, how varied and how original sentences are, several sets side by side."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskropolis.app import model_options as options
from maskropolis.errors import InputError

if TYPE_CHECKING:
    from maskropolis.evaluation.evaluating import Evaluation
    from maskropolis.evaluation.judging.judge import Judge


def register(application: typer.Typer) -> None:
    application.command("evaluate")(evaluate)


def evaluate(
    samples: Annotated[
        list[str],
        typer.Argument(metavar="SAMPLES…", help="Text (one a line), .jsonl, .csv, .tsv, .parquet, or a run folder."),
    ],
    judge: Annotated[
        str | None, typer.Option(metavar="NAME|DIR|FILE.gguf", help="A causal language model, for perplexity.")
    ] = None,
    judge_start: Annotated[
        str, typer.Option(metavar="TOKEN", help="What the first token is conditioned on: auto, none, or a token.")
    ] = "auto",
    energies: Annotated[bool, typer.Option("--energies", help="Energies under the masked model --model.")] = False,
    training: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE|DIR", help="Training text: how much is copied from it; repeatable."),
    ] = None,
    reference: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Reference lines: BLEU and chrF; repeatable.")
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(metavar="N", help="Draw N sentences from each set, for equal sizes.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="Of a run folder only the last state of each chain.")] = False,
    tokenize: Annotated[str, typer.Option(help="Words by sacrebleu: 13a, intl, char, zh or none.")] = "13a",
    resamples: Annotated[int, typer.Option(help="Resamples behind each confidence interval.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON; - for stdout.")
    ] = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the table as Markdown; - for stdout.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")] = False,
    format: Annotated[str | None, typer.Option(help="text, jsonl, csv, tsv or parquet; else by suffix.")] = None,
    text_field: Annotated[str, typer.Option(help="Field or column that holds the sentence.")] = "text",
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Pass over empty sentences.")] = False,
    model: options.Model = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
    token_budget: options.TokenBudget = None,
) -> None:
    """Measure sets of sentences: length, diversity and repetition, and with options fluency, energies and copying.

    Every number comes with a confidence interval; states of one chain are resampled together.

    \b
    maskropolis evaluate run-a run-b --judge SmolLM2-135M-Instruct.Q4_1.gguf
    maskropolis evaluate samples.jsonl --energies --training books/ --json figures.json
    """
    from dataclasses import replace

    from maskropolis.evaluation.evaluating import Questions, require
    from maskropolis.evaluation.evaluating import evaluate as evaluate_systems
    from maskropolis.evaluation.intervals import Resampling
    from maskropolis.evaluation.systems import read_systems
    from maskropolis.records import Fields, check_output

    if json_file == markdown == "-":
        raise InputError("--json and --markdown cannot both go to standard output; name a file for one of them")
    for file in filter(None, (json_file, markdown)):
        check_output(file, overwrite)
    resampling = Resampling(resamples, confidence, seed)
    systems = read_systems(samples, Fields(text_field, skip_empty=skip_empty), format, last)
    if sentences is not None:
        systems = [system.some(sentences, seed) for system in systems]
    questions = Questions(None, None, training or (), _references(reference or []), tokenize, resampling)
    require(systems, questions)
    rest: dict[str, Any] = {"device": device, "dtype": dtype}
    rest |= {"allow_pickle": allow_pickle, "trust_remote_code": trust_remote_code}
    if energies or model is not None:
        masked = options.open_model(model, token_budget=token_budget, **rest)
        questions = replace(questions, model=masked)
    if judge is not None:
        questions = replace(questions, judge=_judge(judge, judge_start, token_budget, rest))
    with _progress() as observe:
        found = evaluate_systems(systems, questions, observe)
    _write(found, json_file, markdown, overwrite)


def _references(files: list[str]) -> list[list[str]]:
    from maskropolis.records import read_lines

    return [[line for _, line in read_lines(file)] for file in files]


def _judge(name: str, start: str, token_budget: int | None, rest: dict[str, Any]) -> Judge:
    from maskropolis.evaluation.judging.judge import Judge

    if sys.stderr.isatty():
        print(f"loading the judge {name} …", file=sys.stderr)
    return Judge.load(name, start=None if start == "none" else start, token_budget=token_budget, **rest)


def _write(found: Evaluation, json_file: str | None, markdown: str | None, overwrite: bool) -> None:
    from maskropolis.evaluation.tables import notes, to_markdown, to_rich
    from maskropolis.records import open_output
    from maskropolis.terminal import new_console

    if json_file is not None:
        with open_output(json_file, overwrite) as stream:
            text = json.dumps(found.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
            stream.write(f"{text}\n".encode("utf-8", "backslashreplace"))
    if markdown is not None:
        with open_output(markdown, overwrite) as stream:
            stream.write(to_markdown(found).encode("utf-8", "backslashreplace"))
    to_stderr = "-" in (json_file, markdown)
    width = None if (sys.stderr if to_stderr else sys.stdout).isatty() else 60 + 30 * len(found.results)
    console = new_console(stderr=to_stderr, highlight=False, width=width)
    console.print(to_rich(found))
    for note in notes(found):
        console.print(f"note: {note}", markup=False)
    console.print(f"\n{found.signature}", markup=False, style="dim", soft_wrap=True)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar for each kind of work on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from maskropolis.terminal import new_console

    columns = (TextColumn("{task.description} {task.completed:,.0f}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=new_console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def observe(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.advance(tasks[what], done)

        yield observe
