"""How the time of a step grows with chains and length, and how much memory many chains take."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from statistics import median

import torch

from benchmarks.harness import Goal, benchmark
from benchmarks.limit import sequences_of
from benchmarks.models import bert_base_shaped, tiny
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import Streams
from maskropolis.targets.energy import NORM

CHAINS = (1, 8, 64, 512)
LENGTHS = (8, 16, 32, 64, 128)
STEPS = 5


def step_seconds(model: MaskedLM, chains: int, length: int) -> float:
    """Median wall time of a single-site step without early rejection, so that every step has the same work."""
    kernel = build_kernel("single-site:early_rejection=no", NORM)
    sequences = sequences_of(model, length, tokens=chains * length**2)
    state, streams = kernel.init(model, sequences), Streams(0, range(chains))
    seconds = []
    for step in range(STEPS):
        uniforms = streams.uniforms(step, kernel.uniforms_per_step, model.device)
        start = time.perf_counter()
        state, _ = kernel.step(model, state, 1.0, uniforms)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def exponent(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Slope of log seconds over log size, by least squares."""
    x, y = [math.log(s) for s in sizes], [math.log(s) for s in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return slope / sum((a - mean_x) ** 2 for a in x)


@benchmark("growth.chains_exponent", "exponent of seconds a step", Goal(1.05, at_most=True))
def chains_exponent() -> float:
    """A small model, 16 tokens a chain; 1 would be proportional, below 1 the batches fill up."""
    model = tiny()
    seconds = [step_seconds(model, chains, 16) for chains in CHAINS]
    print("  chains:", ", ".join(f"{c}: {1e3 * s:.1f} ms" for c, s in zip(CHAINS, seconds, strict=True)))
    return exponent(CHAINS, seconds)


@benchmark("growth.length_exponent", "exponent of seconds a step", Goal(2.2, at_most=True))
def length_exponent() -> float:
    """16 chains; n − 1 rows of n tokens make 2, attention a little more."""
    model = tiny()
    seconds = [step_seconds(model, 16, length) for length in LENGTHS]
    print("  length:", ", ".join(f"{n}: {1e3 * s:.1f} ms" for n, s in zip(LENGTHS, seconds, strict=True)))
    return exponent(LENGTHS, seconds)


@benchmark("growth.peak_memory", "GiB above the weights, 512 chains x 64 tokens", Goal(1.5, at_most=True))
def peak_memory() -> float:
    """In a process of its own, by the high-water mark of its resident memory.

    BERT-base's shape with one layer instead of twelve: without gradients a layer's activations are gone when the next
    one begins, so the peak is the same and the measurement takes minutes instead of an hour.
    """
    code = "from benchmarks.growth import print_peak; print_peak()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(found.stdout.split()[-1])


def print_peak() -> None:
    """One step of 512 chains of 64 tokens; prints GiB of the peak above what was resident with the weights loaded."""
    from maskropolis.models.forward.planner import forget_peak, resident

    model = bert_base_shaped(layers=1)
    sequences = sequences_of(model, 64, tokens=512 * 64**2)
    kernel = build_kernel("single-site", NORM)
    before = resident("VmRSS")
    forget_peak()
    state = kernel.init(model, sequences)
    kernel.step(model, state, 1.0, torch.rand(512, kernel.uniforms_per_step, dtype=torch.float64))
    print((resident("VmHWM") - before) / 2**30)
