"""Text that came from a model or a file, on a terminal: control characters are made visible there, and only there.

An escape sequence could recolour, erase or retitle, an override could turn the order of what is read. Files and pipes
get every byte as it is.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0 but tab and newline, DEL, C1, marks and overrides of the writing direction, line separators, lone surrogates."""


def visible(text: str) -> str:
    """The text with each control character written as Python writes it: `\\x1b`, `\\u202e`."""
    return _UNSEEN.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def shown(value: Any) -> Any:
    """For the `finalize` of a page's template: plain text made visible, everything else as it is."""
    return visible(value) if type(value) is str else value


class _Terminal:
    """A terminal stream that shows what is written to it; `raw` is the stream itself."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> _TerminalBytes:
        return _TerminalBytes(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class _TerminalBytes(io.RawIOBase):
    """The binary side of a terminal: bytes are UTF-8, and shown as the text side shows them."""

    def __init__(self, terminal: _Terminal) -> None:
        self._terminal = terminal

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._terminal.write(bytes(content).decode("utf-8", "surrogateescape"))
        return len(content)

    def flush(self) -> None:
        self._terminal.raw.flush()

    def close(self) -> None:
        """The terminal stays open."""


@contextmanager
def guarded() -> Iterator[None]:
    """Within, what goes to a terminal by standard output or standard error is made visible; see `visible`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Terminal(stream) if _is_terminal(stream) else stream for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _is_terminal(stream: Any) -> bool:
    return stream is not None and not isinstance(stream, _Terminal) and stream.isatty()


def new_console(*, stderr: bool = False, **options: Any) -> Console:
    """A console of rich for standard output or standard error: its own colours and movements reach a terminal, those
    in a text do not."""
    stream = sys.stderr if stderr else sys.stdout
    made: Console = _visible_console()(file=stream.raw if isinstance(stream, _Terminal) else stream, **options)
    return made


@cache
def _visible_console() -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class VisibleConsole(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                shown = segment.text if segment.control or not self.is_terminal else visible(segment.text)
                yield segment if shown == segment.text else Segment(shown, segment.style)

    return VisibleConsole
