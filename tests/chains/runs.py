"""What the tests of run folders share: runs to interrupt, and ways to interrupt them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import maskropolis
from maskropolis.chains import driver
from maskropolis.records import files

SMALL = {"length": [4, 6], "chains": 3, "burn_in": 1, "thin": 1, "steps": 60, "seed": 5}
EVERY = 10


def reference(model: Any, **settings: Any) -> list[tuple[Any, ...]]:
    """What an uninterrupted run gives, in memory."""
    return content(maskropolis.sample(model, **settings))


def content(samples: Any) -> list[tuple[Any, ...]]:
    """Every bit that resuming has to give back."""
    fields = ("chain", "step", "text", "token_ids", "energy", "temperature", "accepted")
    return [tuple(repr(record[field]) for field in fields) for record in samples]


def killed(work: Callable[[], Any], seconds: float) -> bool:
    """Run `work` in a forked process and kill it by SIGKILL after `seconds`; whether it was still at work."""
    child = _forked(work)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def killed_at_write(work: Callable[[], Any], number: int) -> bool:
    """Run `work` in a forked process that kills itself at its write `number`; whether it got so far.

    Writes are flushes (of a partial file, and of its folder once it has its name) and removals.
    """

    def with_trap() -> None:
        count = 0

        def trapped(function: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(*arguments: Any, **named: Any) -> Any:
                nonlocal count
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **named)

            return wrapper

        files._flush_to_disk = trapped(files._flush_to_disk)
        Path.unlink = trapped(Path.unlink)  # type: ignore[method-assign]
        work()

    return os.WIFSIGNALED(os.waitpid(_forked(with_trap), 0)[1])


def _forked(work: Callable[[], Any]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], Any]) -> None:
    """Call `act` when the state after `step` steps has been computed."""
    settled = driver.settled

    def wrapper(state: Any) -> Any:
        if state.step == step:
            act()
        return settled(state)

    monkeypatch.setattr(driver, "settled", wrapper)


def parts(folder: Path, name: str) -> Iterator[Path]:
    return iter(sorted((folder / name).glob("part-*.parquet")))
