"""`maskropolis sample --method diffusion|mask-predict|langevin`: masks filled without a chain."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskropolis.generation import GenerationConfig
    from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM

_OWN = {
    "sampler": ("--sampler", "diffusion"), "noise": ("--noise", "diffusion"), "top_p": ("--top-p", "diffusion"),
    "block": ("--block-size", "diffusion"), "remasking": ("--remask", "diffusion"),
    "choice_temperature": ("--choice-temperature", "diffusion"), "levels": ("--levels", "langevin"),
    "step_size": ("--step-size", "langevin"), "sigmas": ("--sigmas", "langevin"), "decode": ("--decode", "langevin"),
}  # fmt: skip
"""Setting -> its option, and the method that it belongs to."""


def configuration(method: str, given: dict[str, Any], of_chains: dict[str, Any]) -> GenerationConfig:
    """The settings `given`, those that are None left to their defaults. Raises `InputError` for options `of_chains`
    (name -> value) that have no meaning without a chain."""
    from maskropolis.errors import InputError
    from maskropolis.generation import METHODS, GenerationConfig

    if method in METHODS:
        for name, value in of_chains.items():
            if value not in (None, False, [], ()):
                raise InputError(f"{name} belongs to --method mh; '{method}' runs no chain")
        for name, (option, owner) in _OWN.items():
            if given[name] is not None and owner != method:
                raise InputError(f"{option} belongs to --method {owner}, not {method}")
        if method == "langevin" and given["temperature"] != 1.0:
            raise InputError("Langevin dynamics has no temperature; leave --temperature away")
    return GenerationConfig(method=method, **{name: value for name, value in given.items() if value is not None})


def run(model: HuggingFaceMaskedLM, config: GenerationConfig, output: str | None, overwrite: bool) -> None:
    """Generate, write to `output` or show, and say how on standard error."""
    import typer

    from maskropolis.app.outcome import show
    from maskropolis.generation import run as generate
    from maskropolis.records import open_records

    with ExitStack() as stack:
        write = None if output is None else stack.enter_context(open_records(output, overwrite))
        with _progress(config.method) as observe:
            result = generate(model, config, observe)
        if write is None:
            show(result.records, model.codec.format)
        else:
            write(result.records)
    for notice in result.notices:
        typer.echo(f"warning: {notice}", err=True)
    typer.echo(f"{result.rows} model rows for {len(result.records)} sequences", err=True)
    typer.echo(result.signature, err=True)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar of the steps on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda made, total: None
        return
    from rich.progress import Progress

    from maskropolis.terminal import new_console

    with Progress(console=new_console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda made, total: bar.update(task, completed=made, total=total)
