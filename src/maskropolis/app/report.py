"""`maskropolis report`: one HTML file about a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from maskropolis.app import model_options as options

if TYPE_CHECKING:
    from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
    from maskropolis.runs.folder import Run


_LOADING = ("tokenizer", "revision", "format")


def register(application: typer.Typer) -> None:
    application.command("report")(report)


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, also of a run that is still going on.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="- for stdout.")] = "report.html",
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME|DIR", help="Where the model of the run is now, if it moved."),
    ] = None,
    no_model: Annotated[bool, typer.Option("--no-model", help="Do not load it; tokens are then not shaded.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Write one self-contained page: what was run, verdict, figures, samples with their token probabilities.

    It needs no network, no script, and reads well on a phone. The model is loaded to shade the tokens of the samples.
    """
    from maskropolis.records import check_output
    from maskropolis.report import write_report
    from maskropolis.runs.folder import open_run

    check_output(output, overwrite)
    opened = open_run(run)
    found, note = None, "--no-model was given"
    if not no_model:
        found, note = _model(opened, model, device, allow_pickle, trust_remote_code)
    write_report(opened, output, found, note, overwrite)
    if note and not no_model:
        typer.echo(f"warning: tokens are not shaded: {note}", err=True)
    if output != "-":
        typer.echo(f"wrote {output}", err=True)


def _model(
    run: Run, model: str | None, device: str, allow_pickle: bool, trust_remote_code: bool
) -> tuple[HuggingFaceMaskedLM | None, str]:
    """The model of the run, or why it cannot be had. One that was named but is another is an error."""
    from maskropolis.errors import MaskropolisError
    from maskropolis.models import load
    from maskropolis.runs.describing import require_same_model

    saved = run.description["model"]
    if model is None and not saved["loaded_with"]:
        return None, "the run used a model made in Python; save it and name its folder by --model"
    given = {key: saved["loaded_with"].get(key) for key in _LOADING if saved["loaded_with"].get(key)}
    try:
        loaded = load(
            model or saved["folder"] or saved["name"],
            device=device,
            allow_pickle=allow_pickle,
            trust_remote_code=trust_remote_code,
            dtype=saved["loaded_with"].get("dtype", "float32"),
            **given,
        )
        require_same_model(loaded, run.description, run.path)
    except MaskropolisError as error:
        if model is not None:
            raise
        return None, str(error)
    return loaded, ""
