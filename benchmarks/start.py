"""How long a person waits for the first sample."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from benchmarks.harness import Goal, benchmark

ROUNDS = 5


@benchmark("start.first_sample_seconds", "s", Goal(6.0, at_most=True))
def first_sample() -> float:
    """`maskropolis sample` with one chain, one sweep, the model of the package: from the command to its first line."""
    command = [sys.executable, "-m", "maskropolis.cli", "sample", "--chains", "1", "--burn-in", "0", "--thin", "1"]
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            seconds.append(time.perf_counter() - start)
            assert line, "no sample was printed"
    print("  " + ", ".join(f"{s:.2f} s" for s in seconds))
    return median(seconds)
