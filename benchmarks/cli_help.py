"""How long `maskropolis --help` takes, from a shell: the price of every typing error and every tab."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.harness import Goal, benchmark


@benchmark("cli.help_seconds", unit="s", goal=Goal(0.3, at_most=True))
def help_seconds(runs: int = 11) -> float:
    """Median wall time of `runs` fresh processes, after one to warm the file cache."""
    command = [sys.executable, "-m", "maskropolis.cli", "--help"]
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
