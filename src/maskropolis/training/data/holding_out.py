"""Which text is kept back for validation: whole files where there are many, else blocks of lines; drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskropolis.errors import InputError
from maskropolis.training.data.batches import stream
from maskropolis.training.data.readers import read_all, read_lines

_ENOUGH_FILES = 20
_BLOCK = 20  # lines: neighbours stay together, or held-out text would be half known

Lines = Callable[[], Iterator[str]]


@dataclass(frozen=True)
class Split:
    """Two re-readable streams of paragraphs. `description` says in words how the text was divided."""

    training: Lines
    validation: Lines
    training_files: tuple[Path, ...]
    validation_files: tuple[Path, ...]
    description: str


def given(training: Sequence[Path], validation: Sequence[Path], column: str) -> Split:
    """Validation text that the user named."""
    if both := set(training) & set(validation):
        raise InputError(f"'{min(both)}' is named both for training and for validation")
    return Split(
        lambda: read_all(training, column),
        lambda: read_all(validation, column),
        tuple(training),
        tuple(validation),
        f"validation on {', '.join(sorted(f.name for f in validation))}",
    )


def drawn(files: Sequence[Path], column: str, share: float, seed: int) -> Split:
    """`share` of the files, or of blocks of 20 lines if there are fewer than 20 files. Raises `InputError`."""
    if not 0 < share < 1:
        raise InputError(f"the share held out is {share:g}; expected a number between 0 and 1")
    draw = _by_file if len(files) >= _ENOUGH_FILES else _by_block
    return draw(files, column, share, seed)


def _by_file(files: Sequence[Path], column: str, share: float, seed: int) -> Split:
    count = max(1, round(len(files) * share))
    held = set(stream(seed, 6).choice(len(files), size=count, replace=False).tolist())
    split = given(
        [f for i, f in enumerate(files) if i not in held], [f for i, f in enumerate(files) if i in held], column
    )
    names = ", ".join(sorted(f.stem for f in split.validation_files))
    return Split(
        split.training,
        split.validation,
        split.training_files,
        split.validation_files,
        f"{count} of {len(files)} files held out, drawn with seed {seed}: {names}",
    )


def _by_block(files: Sequence[Path], column: str, share: float, seed: int) -> Split:
    def part(held_out: bool) -> Iterator[str]:
        number, held = 0, False
        for path in files:
            for line in read_lines(path, column):
                if number % _BLOCK == 0:
                    held = stream(seed, 7, number // _BLOCK).random() < share
                if held == held_out:
                    yield line
                number += 1

    return Split(
        lambda: part(False),
        lambda: part(True),
        tuple(files),
        tuple(files),
        f"blocks of {_BLOCK} lines held out with probability {share:g}, drawn with seed {seed}",
    )
