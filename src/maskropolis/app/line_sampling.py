"""`maskropolis sample --from FILE` without a run folder: any number of lines in, their samples out in order."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import typer

if TYPE_CHECKING:
    from maskropolis.chains.configuration import SamplingConfig
    from maskropolis.chains.portions import Portion
    from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
    from maskropolis.records import Record


MOST_IN_A_RUN = 10_000
"""Lines that `--out` takes, where all chains are stepped together."""


class Output(NamedTuple):
    """Where portions go: `write` makes one sure, `done` lines were answered by an earlier job."""

    write: Callable[[Portion], None]
    done: int


def require_resumable(resume: bool, lines: str | None, output: str | None) -> None:
    """Raises `InputError` if `--resume` has nothing to go on with. The model is not loaded yet."""
    from maskropolis.errors import InputError
    from maskropolis.records import row_format

    if resume and (lines is None or output is None):
        raise InputError("--resume goes on with --from FILE --output FILE; for a run folder use `maskropolis resume`")
    if resume and output is not None and row_format(output) is None:
        raise InputError(f"'{output}' cannot be resumed, since a table is written as a whole; write .jsonl instead")


def read(
    lines: str, format: str, length: str | None, template: list[str] | None, text: list[str] | None
) -> Iterator[Record]:
    """The records of a file, one at a time. Raises `InputError` if there are none, or chains start elsewhere too."""
    from maskropolis.errors import InputError
    from maskropolis.records import Fields, read_records

    for name, given in (("length", length), ("template", template), ("text", text)):
        if given:
            raise InputError(f"expected one of --from and --{name}; got both")
    records = read_records(lines, Fields(offer_skipping=False), format)
    first = next(records, None)
    if first is None:
        raise InputError(f"the file '{lines}' has no lines; expected one text a line")
    return itertools.chain([first], records)


def run(
    model: HuggingFaceMaskedLM,
    config: SamplingConfig,
    records: Iterator[Record],
    output: str | None,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Chains from all `records`. Ctrl-C and SIGTERM end it with 128 + the signal, and what was done is kept."""
    from maskropolis.app.partial import partial_told
    from maskropolis.chains.portions import portions, portions_signature, require_enough_burn_in
    from maskropolis.chains.totals import Totals

    kernel = config.make_kernel(model)
    require_enough_burn_in(config, kernel)
    signature, totals = portions_signature(model, config, kernel), Totals()
    with partial_told(output or "-"), _opened(output, signature, resume, overwrite, model.codec.format) as out:
        done = sum(1 for _ in itertools.islice(records, out.done))
        for portion in portions(model, config, kernel, records, done):
            for notice in portion.totals.notices:
                typer.echo(f"warning: {notice}", err=True)
            totals.add(portion.totals)
            if portion.stopped_by:
                _say_interrupted(done, output)
                raise typer.Exit(128 + portion.stopped_by)
            out.write(portion)
            done = portion.first + portion.lines
    typer.echo(f"{done} lines, accepted {totals.acceptance_rate:.1%} of proposals, {totals.rows} model rows", err=True)
    typer.echo(signature, err=True)


def _say_interrupted(done: int, output: str | None) -> None:
    from maskropolis.records import row_format

    typer.echo(f"interrupted; {done} lines are done", err=True)
    if output not in (None, "-") and row_format(str(output)) is not None:
        typer.echo(f"they are in '{output}.partial'; go on with the same command and --resume", err=True)


@contextlib.contextmanager
def _opened(output: str | None, signature: str, resume: bool, overwrite: bool, alphabet: str) -> Iterator[Output]:
    """Standard output for people, a file of lines that can be gone on with, or a table."""
    from maskropolis.app.outcome import show
    from maskropolis.records import open_records, row_format
    from maskropolis.runs.line_output import open_lines

    if output is None:
        yield Output(lambda portion: show(portion.records, alphabet), 0)
        return
    line = row_format(output)
    if line is None:
        with open_records(output, overwrite) as write:
            yield Output(lambda portion: write(portion.records), 0)
        return
    with open_lines(output, signature, resume=resume, overwrite=overwrite) as lines:
        yield Output(lambda portion: lines.write(list(map(line, portion.records)), portion.lines), lines.done)
