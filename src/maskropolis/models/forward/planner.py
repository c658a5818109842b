"""How many tokens fit into one forward pass: measured on the device, not guessed.

Two small batches are run, and the growth of the peak memory between them is what a token costs. The budget is the part
of the free memory that the network may use, divided by that cost, but never more than the size from which on the device
gains nothing.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch

from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences

SHARE = 0.5  # of the free memory; the rest is for kept conditionals, logits and whatever else the process does
ENOUGH = {"cpu": 1024, "cuda": 1 << 18}  # tokens from which on throughput is flat (a CPU: what its cache holds)
LEAST = 256
AMPLE = 4 << 30  # bytes of free memory with which a thousand tokens on a CPU need no measuring


def measured_budget(model: MaskedLM) -> int:
    """Tokens (rows x padded length) that one forward pass of `model` may have on its device."""
    enough, free = ENOUGH.get(model.device.type, 8192), free_memory(model.device)
    if model.device.type == "cpu" and free >= AMPLE:
        return enough
    fits = int(SHARE * free / max(1.0, bytes_per_token(model)))
    return max(LEAST, min(fits, enough))


def bytes_per_token(model: MaskedLM, width: int = 32) -> float:
    """Growth of the peak memory of a forward pass per token, between batches of 4 and 64 rows of `width` tokens."""
    width = min(width, model.max_length or width)
    small, large = (_peak(model, _rows(model, count, width)) for count in (4, 64))
    return (large - small) / (60 * width)


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on `device`."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2 << 30


def _rows(model: MaskedLM, count: int, width: int) -> Sequences:
    token = int(model.allowed.nonzero()[0, 0])
    tokens = torch.full((count, width), token, device=model.device)
    every = torch.ones_like(tokens, dtype=torch.bool)
    return Sequences(tokens, every, every)


def _peak(model: MaskedLM, rows: Sequences) -> int:
    """Largest number of bytes alive at one time during a forward pass, beyond what was there before."""
    positions = torch.zeros(len(rows), 1, dtype=torch.long, device=rows.device)
    if rows.device.type == "cuda":
        torch.cuda.synchronize(rows.device)
        torch.cuda.reset_peak_memory_stats(rows.device)
        before = torch.cuda.memory_allocated(rows.device)
        model.logits(rows, positions)
        torch.cuda.synchronize(rows.device)
        return torch.cuda.max_memory_allocated(rows.device) - before
    before = resident("VmRSS")
    forget_peak()
    model.logits(rows, positions)
    return max(0, resident("VmHWM") - before)


def forget_peak() -> None:
    """Set the high-water mark of the process's resident memory back to what it holds now (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def resident(which: str) -> int:
    """Bytes of resident memory: VmRSS now, VmHWM at most since `forget_peak`; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(which):
                return 1024 * int(line.split()[1])
    return 0
