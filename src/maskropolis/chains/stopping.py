"""Ctrl-C and SIGTERM end a run after the step in hand, so that no state is ever half made."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """A context manager: the first signal is remembered in `received`, a second one interrupts at once.

    Outside the main thread Python delivers no signals, and nothing is installed; nor for a signal that the process was
    told to ignore.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = before
                    signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
