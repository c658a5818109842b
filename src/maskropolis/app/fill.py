"""`maskropolis fill`: gaps in prose filled by Metropolis–Hastings, at fixed lengths or lengths within bounds."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskropolis.app import model_options as options
from maskropolis.errors import InputError

if TYPE_CHECKING:
    from maskropolis.infilling import Filling

_STEERING, _CHAIN, _OUTPUT = "Steering", "Chain", "Output"


def register(application: typer.Typer) -> None:
    application.command("fill")(fill)


def _option(panel: str, *names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel)


def fill(
    template: Annotated[
        list[str], typer.Argument(metavar="TEXT…", help="Text with [MASK], [MASK:3] or [MASK:2-4] where it has gaps.")
    ],
    samples: Annotated[int, typer.Option("--samples", "-n", help="Fillings of each text.")] = 5,
    best_of: Annotated[int, typer.Option(help="Each is the best of so many chains.")] = 1,
    offset: Annotated[
        float | None, typer.Option(metavar="NATS", help="--best-of: c, what a token may cost. [default: of the prose]")
    ] = None,
    offset_from: Annotated[
        str | None, typer.Option(metavar="FILE", help="Estimate the offset from the lines of a file.")
    ] = None,
    energy: Annotated[str, _option(_CHAIN, "--energy", "-e", metavar="NAME", help="norm or raw.")] = "norm",
    kernel: Annotated[
        str | None,
        _option(_CHAIN, "--kernel", "-k", metavar="NAME[:…]", help="[default: single-site, resize across lengths]"),
    ] = None,
    temperature: Annotated[float, _option(_CHAIN, "--temperature", "-T", help="τ in exp(−E/τ).")] = 1.0,
    final_temperature: Annotated[float | None, _option(_CHAIN, "--final-temperature", help="Anneal to this.")] = None,
    start: Annotated[
        str, _option(_CHAIN, "--start", metavar="HOW", help="greedy, sampled, random or diffusion.")
    ] = "sampled",
    burn_in: Annotated[float, _option(_CHAIN, "--burn-in", help="Sweeps of each chain.")] = 30,
    seed: Annotated[int, _option(_CHAIN, "--seed", "-s", help="Seed of all random numbers.")] = 0,
    expert: Annotated[
        list[str] | None, _option(_STEERING, "--expert", metavar="KIND:…:WEIGHT", help="As in sample; repeatable.")
    ] = None,
    require: Annotated[list[str] | None, _option(_STEERING, "--require", metavar="WORD", help="In every text.")] = None,
    forbid: Annotated[list[str] | None, _option(_STEERING, "--forbid", metavar="WORD", help="In no text.")] = None,
    allow: Annotated[
        list[str] | None, _option(_STEERING, "--allow", metavar="[POSITIONS:]SET", help="E.g. words, letters, amino.")
    ] = None,
    no_repeat: Annotated[
        int | None, _option(_STEERING, "--no-repeat", metavar="N", help="No N tokens in a row twice.")
    ] = None,
    output: Annotated[
        str | None, _option(_OUTPUT, "--output", "-o", metavar="FILE", help=".jsonl, .parquet, .csv or - .")
    ] = None,
    overwrite: Annotated[bool, _option(_OUTPUT, "--overwrite", help="Replace an existing output.")] = False,
    format: options.Format = None,
    model: options.Model = None,
    tokenizer: options.Tokenizer = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
    token_budget: options.TokenBudget = None,
) -> None:
    """Fill gaps in prose: samples of exp(−E/τ), or with --best-of the best of several.

    A gap is so many tokens; where it may have more or fewer, chains move between lengths too. The best of several is
    the one of lowest E − c·n, with n tokens in all gaps; the offset c is said on standard error.

    \b
    maskropolis fill "She opened the [MASK:2-4] and saw [MASK:3]." --best-of 16 --samples 5
    maskropolis fill "MKT[MASK:3-6]QRQ" -m ./my-esm --format fasta -o loops.fasta
    """
    from maskropolis.decoders.gaps import GappedText
    from maskropolis.infilling import fill as fill_gaps
    from maskropolis.records import check_output, open_records

    if output is not None:
        check_output(output, overwrite)
    texts = _lines(offset_from)
    settings: dict[str, Any] = {
        "energy": energy, "temperature": temperature, "final_temperature": final_temperature, "start": start,
        "burn_in": burn_in, "thin": 0, "seed": seed, "experts": tuple(expert or ()), "require": tuple(require or ()),
        "forbid": tuple(forbid or ()), "allow": tuple(allow or ()), "no_repeat": no_repeat,
    }  # fmt: skip
    if kernel is not None:
        settings["kernel"] = kernel
    opened = options.open_model(
        model, tokenizer, device, dtype, allow_pickle, trust_remote_code, token_budget, _format(format, output)
    )
    for text in template:
        GappedText.parse(text, opened.codec.tokenizer.mask_token)
    stopped = None
    with ExitStack() as stack:
        write = None if output is None else stack.enter_context(open_records(output, overwrite))
        for line, text in enumerate(template, start=1):
            result = fill_gaps(
                text, opened, samples=samples, best_of=best_of, offset=offset, offset_texts=texts, **settings
            )
            if write is None:
                for filling in result.fillings:
                    _show(filling)
            else:
                write([filling.as_row() | ({"line": line} if len(template) > 1 else {}) for filling in result.fillings])
            _report(result)
            stopped = result.stopped_by
            if stopped:
                break
    if stopped:
        raise typer.Exit(128 + stopped)


def _format(format: str | None, output: str | None) -> str:
    from maskropolis.errors import unknown_name
    from maskropolis.records import ALPHABETS, alphabet_of

    if format is not None and format not in ALPHABETS:
        raise unknown_name("format", format, ALPHABETS)
    return format or alphabet_of(output, None)


def _lines(offset_from: str | None) -> list[str]:
    from maskropolis.records import Fields, read_records

    if offset_from is None:
        return []
    texts = [record.text for record in read_records(offset_from, Fields(skip_empty=True))]
    if not texts:
        raise InputError(f"the file '{offset_from}' has no lines; expected texts to estimate the offset from")
    return texts


def _show(filling: Filling) -> None:
    """Score and text, the fillings highlighted on a terminal."""
    from rich.text import Text

    from maskropolis.terminal import new_console

    if not sys.stdout.isatty():
        typer.echo(f"{filling.score:9.3f}  {filling.text}")
        return
    line = Text(filling.text)
    for span in filling.spans:
        line.stylize("bold green", span.start, span.stop)
    new_console(highlight=False).print(Text.assemble((f"{filling.score:9.3f}  ", "dim"), line))


def _report(result: Any) -> None:
    for notice in result.notices:
        typer.echo(f"warning: {notice}", err=True)
    if result.offset_source:
        typer.echo(f"offset {result.offset:.4g} nats a token: {result.offset_source}", err=True)
    typer.echo(f"accepted {result.acceptance_rate:.1%} of proposals, {result.rows} model rows", err=True)
    typer.echo(result.signature, err=True)
