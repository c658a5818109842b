"""The command line: collects the commands of `maskropolis.app` and turns every foreseen error into one line."""

from __future__ import annotations

import errno
import importlib
import io
import os
import pkgutil
import sys
from typing import Any, NoReturn

import typer

from maskropolis import __version__
from maskropolis import app as commands
from maskropolis.app.commands import Commands
from maskropolis.terminal import visible

application = Commands(
    name="maskropolis",
    help="Masked language models as the probability distributions they implicitly are.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"maskropolis {__version__}")
        raise typer.Exit()


@application.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """Score, sample, train and verify masked language models."""


def _collect() -> None:
    """Each module of `maskropolis.app` has a function `register(application)`; importing it must not import torch."""
    for module in sorted(pkgutil.iter_modules(commands.__path__), key=lambda m: m.name):
        loaded = importlib.import_module(f"{commands.__name__}.{module.name}")
        if hasattr(loaded, "register"):
            loaded.register(application)


_collect()


# The base class of click's complaints, which typer carries under a private name.
_Complaint: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> None:
    """Entry point. Exit codes: 0 done, 2 bad input (one line on standard error), 130 or 143 interrupted."""
    from maskropolis.errors import MaskropolisError, out_of_memory

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what no encoding can write is no reason to end
    try:
        code = application(prog_name="maskropolis", standalone_mode=False)
    except MaskropolisError as error:
        _fail(str(error))
    except _Complaint as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
            sys.exit(0)
        command = getattr(getattr(error, "ctx", None), "command_path", "maskropolis")
        _fail(f"{error.format_message().rstrip('.')}; see `{command} --help`")
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read the output has enough; what Python flushes at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES):
            raise
        _fail(f"cannot write: {error.strerror}; what was written before is kept")
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        _fail("memory ran out; take fewer chains, shorter texts or a smaller --token-budget")
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    line = "error: " + " ".join(message.split())
    print(visible(line) if sys.stderr.isatty() else line, file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
