"""Which position is next: uniform at random, or a systematic scan of the free positions."""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.errors import unknown_name
from maskropolis.randomness import pick
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import free_in_order

SCANS = ("random", "left-to-right", "right-to-left", "back-and-forth")


def require_scan(name: str) -> None:
    """Raises `InputError` unless `name` is a scan."""
    if name not in SCANS:
        raise unknown_name("scan", name, SCANS)


def next_position(sequences: Sequences, scan: str, step: int, uniforms: Tensor) -> Tensor:
    """[C] int64, a free position of each chain. Random scans use the uniform [C]; systematic ones the step number."""
    counts = sequences.free_counts
    if scan == "random":
        rank = pick(counts, uniforms)
    elif scan == "left-to-right":
        rank = step % counts
    elif scan == "right-to-left":
        rank = counts - 1 - step % counts
    else:
        there = step % (2 * counts)
        rank = torch.minimum(there, 2 * counts - 1 - there)
    return free_in_order(sequences).gather(1, rank[:, None])[:, 0]
