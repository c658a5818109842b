"""Checkpoints: the complete state of a run after some step, with the checksums of everything written up to it.

    checkpoint/000000100.safetensors   the tensors of the state
    checkpoint/000000100.json          the rest, and checksums of the tensors, of the parts so far and of itself

The JSON file is written last: it is what makes a checkpoint. The one before is kept, in case this one gets damaged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from maskropolis.chains.packing import pack, unpack
from maskropolis.chains.totals import Totals
from maskropolis.errors import RunError
from maskropolis.kernels.base import State
from maskropolis.records.files import checksum, checksum_of, read_json, write_json, write_with
from maskropolis.records.inside import inside, is_plain_name, require_no_link, require_regular

FOLDER = "checkpoint"
_KEPT = 2


@dataclass(frozen=True)
class Part:
    """A Parquet file of a run: its name within the run folder, its rows and its SHA-256."""

    file: str
    rows: int
    sha256: str


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Everything that the steps after it depend on, next to the model and the configuration.

    Attributes:
        step: steps made. planned: steps to make in all. chains: the run's index of each row of the state.
        budget: of the model, which decides how rows are batched and so the rounding.
        parts: every part up to this step.
        description: the unchanging half of run.json.
        tree, tensors_sha256: the state but for its tensors, and the checksum of these.
    """

    step: int
    planned: int
    chains: tuple[int, ...]
    budget: dict[str, int]
    totals: Totals
    parts: tuple[Part, ...]
    description: dict[str, Any]
    tree: Any = None
    tensors_sha256: str = ""


def _tensor_file(folder: Path, step: int) -> Path:
    return folder / FOLDER / f"{step:09d}.safetensors"


def _json_file(folder: Path, step: int) -> Path:
    return folder / FOLDER / f"{step:09d}.json"


def save_checkpoint(folder: Path, checkpoint: Checkpoint, state: State) -> None:
    """Write it, then drop all but the newest two. Raises `OSError`; then the earlier ones are as they were."""
    tree, tensors = pack(state)
    target = _tensor_file(folder, checkpoint.step)
    write_with(target, lambda partial: save_file(tensors, partial))
    content = asdict(checkpoint) | {"tree": tree, "tensors_sha256": checksum(target)}
    write_json(_json_file(folder, checkpoint.step), content | {"sha256": checksum_of(content)})
    for old in _steps(folder)[_KEPT:]:
        _json_file(folder, old).unlink(missing_ok=True)
        _tensor_file(folder, old).unlink(missing_ok=True)


def checkpoints(folder: Path, damaged: list[str]) -> Iterator[Checkpoint]:
    """The readable ones, newest first. The names of the others are added to `damaged`."""
    for step in _steps(folder):
        found = _read(_json_file(folder, step))
        if found is None:
            damaged.append(f"{FOLDER}/{step:09d}.json")
        else:
            yield found


def _read(path: Path) -> Checkpoint | None:
    try:
        require_no_link(path)
        require_regular(path)
        content = read_json(path)
        if content.pop("sha256") != checksum_of(content):
            return None
        parts = tuple(Part(**part) for part in content.pop("parts"))
        if not all(is_plain_name(part.file) for part in parts):
            return None
        totals, chains = Totals(**content.pop("totals")), tuple(content.pop("chains"))
        return Checkpoint(**content, parts=parts, totals=totals, chains=chains)
    except (OSError, ValueError, KeyError, TypeError, RunError):
        return None


def load_state(folder: Path, checkpoint: Checkpoint, device: torch.device | str) -> State:
    """The state of a checkpoint whose files are good (see `damage`)."""
    tensors: dict[str, Tensor] = load_file(_tensor_file(folder, checkpoint.step))
    state: State = unpack(checkpoint.tree, tensors, device)
    return state


def damage(folder: Path, checkpoint: Checkpoint) -> list[str]:
    """Names of the files of a checkpoint that are missing or changed; empty if it is good."""
    files = [(str(_tensor_file(folder, checkpoint.step).relative_to(folder)), checkpoint.tensors_sha256)]
    files += [(part.file, part.sha256) for part in checkpoint.parts]
    return [name for name, expected in files if _checksum_or_none(folder, name) != expected]


def _checksum_or_none(folder: Path, name: str) -> str | None:
    with contextlib.suppress(OSError, RunError):
        return checksum(inside(folder, name))
    return None


def discard_after(folder: Path, step: int) -> None:
    """Remove checkpoints of later steps than `step`, and tensors without a checkpoint."""
    for later in _steps(folder):
        if later > step:
            _json_file(folder, later).unlink(missing_ok=True)
    for path in (folder / FOLDER).glob("*.safetensors"):
        if not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)


def _steps(folder: Path) -> list[int]:
    """Steps that have a JSON file, latest first."""
    names = [path.stem for path in (folder / FOLDER).glob("*.json")]
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)
