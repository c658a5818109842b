"""One process on a run folder at a time. The lock is the kernel's: it dies with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from maskropolis.errors import RunError

LOCK_NAME = "run.lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder. Raises `RunError` at once, naming the process, if another one holds it."""
    try:
        handle = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"cannot write to the folder '{folder}': {error.strerror}") from None
    try:
        if not _acquire(handle):
            holder = os.read(handle, 32).decode(errors="replace").strip()
            who = f"process {holder}" if holder.isdecimal() else "another process"
            raise RunError(f"the run '{folder}' is in use by {who}; wait for it, or stop it first")
        os.truncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int) -> bool:
    """Several attempts, since `is_locked` holds the lock for an instant."""
    for _ in range(5):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(0.02)
    return False


def is_locked(folder: Path) -> bool:
    """Whether some living process holds the folder."""
    try:
        handle = os.open(folder / LOCK_NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
