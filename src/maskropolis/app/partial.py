"""What a command says when it ends before its output is complete."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def partial_told(output: str) -> Iterator[None]:
    """Says how to go on when a job ends early."""
    from maskropolis.errors import MaskropolisError

    try:
        yield
    except (MaskropolisError, KeyboardInterrupt) as error:
        partial = Path(output + ".partial")
        if output != "-" and partial.is_file():
            hint = f"what was done is in '{partial}'; go on with --resume"
            if isinstance(error, KeyboardInterrupt):
                print(hint, file=sys.stderr)
            elif "--resume" not in str(error) and "--overwrite" not in str(error):
                error.args = (f"{error}; {hint}",)
        raise
