"""Names that a file gives, kept inside the folder they are meant for: no way up, no link out, no device."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

from maskropolis.errors import RunError


def is_plain_name(name: object) -> bool:
    """Whether `name` is a relative path of plain parts: `samples/part-1.parquet`, not `../x`, `/dev/zero` or `C:x`."""
    if not isinstance(name, str) or not name or "\0" in name or "\\" in name:
        return False
    pure, windows = PurePosixPath(name), PureWindowsPath(name)
    return not (pure.is_absolute() or windows.drive or windows.root) and not {"..", "."} & set(name.split("/"))


def inside(folder: Path, name: str) -> Path:
    """`folder / name`. Raises `RunError` if that is not in the folder, goes through a link, or is no regular file."""
    if not is_plain_name(name):
        raise RunError(f"'{folder}' names the file '{name}', which is not inside it; the folder is damaged or forged")
    path = folder
    for part in PurePosixPath(name).parts:
        path = path / part
        require_no_link(path)
    require_regular(path)
    return path


def require_no_link(path: Path) -> None:
    """Raises `RunError` if `path` is a symbolic link: nothing is read, written or removed through one."""
    if path.is_symlink():
        raise RunError(f"'{path}' is a symbolic link; expected a file or folder of its own; a link leads elsewhere")


def require_regular(path: Path) -> None:
    """Raises `RunError` if `path` is there and is neither a regular file nor a link to one: a device never ends."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # whoever opens it says what is wrong
    if not stat.S_ISREG(mode):
        raise RunError(f"'{path}' is {_kind(mode)}; expected a file")


def _kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device"


def require_own(folder: Path, names: Iterable[str]) -> None:
    """Raises `RunError` if one of the `names` in `folder` is a symbolic link."""
    for name in names:
        require_no_link(folder / name)
