"""What every command is made of: its output is made visible where it goes to a terminal."""

from __future__ import annotations

from typing import Any

import typer
import typer.core

from maskropolis.terminal import guarded


class Command(typer.core.TyperCommand):
    """A command within `guarded`; what typer itself prints, such as help, is left alone."""

    def invoke(self, ctx: Any) -> Any:
        with guarded():
            return super().invoke(ctx)


class Commands(typer.Typer):
    """A group of such commands."""

    def command(self, name: str | None = None, **settings: Any) -> Any:
        return super().command(name, **{"cls": Command, **settings})
