"""`maskropolis resume`: goes on with a run folder, whatever stopped it, or extends a finished run."""

from __future__ import annotations

from typing import Annotated

import typer

from maskropolis.app import model_options as options


def register(application: typer.Typer) -> None:
    application.command("resume")(resume)


def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder that `maskropolis sample --out` wrote.")],
    steps: Annotated[
        int | None,
        typer.Option("--steps", help="Total steps, counted from the start of the run; more than planned extends it."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME|DIR", help="Where the model is now, if it moved."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="Another device than before; rounding may differ there."),
    ] = None,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
    trust_run_code: Annotated[
        bool,
        typer.Option("--trust-run-code", help="Import and call the functions of yours that the run names."),
    ] = False,
) -> None:
    """Go on with a run: its samples are those that it would have produced without the interruption.

    Damaged files are named, and the last good state is used. A model whose weights changed is refused.
    """
    from maskropolis.app.outcome import report_run
    from maskropolis.sampling import resume as resume_run

    before = _steps(run)
    result = resume_run(
        run,
        steps=steps,
        model=model,
        device=device,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        trust_run_code=trust_run_code,
    )
    if result.status == "finished" and result.steps == before:
        typer.echo(f"the run is finished; --steps with more than {result.steps} extends it", err=True)
    report_run(result)


def _steps(run: str) -> int | None:
    """Steps made so far; None if the folder cannot be read, which `resume` itself deals with."""
    from maskropolis.errors import RunError
    from maskropolis.runs.folder import open_run

    try:
        return open_run(run).steps
    except RunError:
        return None
