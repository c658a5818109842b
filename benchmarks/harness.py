"""Registers benchmarks by name, runs them, and merges what they measure into results.json and a Markdown table."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from maskropolis import __version__

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
TABLE = FOLDER / "results.md"


@dataclass(frozen=True)
class Goal:
    """What a figure should reach: at least `value`, or at most where `at_most`."""

    value: float
    at_most: bool = False

    def met(self, measured: float) -> bool:
        return measured <= self.value if self.at_most else measured >= self.value

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.value:g}"


@dataclass(frozen=True)
class Result:
    """One line of results.json."""

    name: str
    value: float
    unit: str
    goal: str
    met: bool
    machine: str
    version: str


@dataclass(frozen=True)
class Benchmark:
    """A named measurement; `measure` returns the figure and may print how it came about."""

    name: str
    unit: str
    goal: Goal
    measure: Callable[[], float]

    def run(self) -> Result:
        value = self.measure()
        return Result(
            self.name, float(f"{value:.4g}"), self.unit, str(self.goal), self.goal.met(value), machine(), __version__
        )


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str, unit: str, goal: Goal) -> Callable[[Callable[[], float]], Callable[[], float]]:
    """Register the decorated function, which takes nothing and returns the figure, under `name`."""

    def register(measure: Callable[[], float]) -> Callable[[], float]:
        if name in BENCHMARKS:
            raise ValueError(f"two benchmarks are called '{name}'")
        BENCHMARKS[name] = Benchmark(name, unit, goal, measure)
        return measure

    return register


def machine() -> str:
    """Processor, cores in use and accelerator, in words."""
    import torch

    names = [line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    where = f"{processor}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    return f"{where}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else where


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def merge(results: list[Result]) -> None:
    """Replace the results of the same names in results.json, keep the others, and write the table anew."""
    old = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    by_name = {entry["name"]: entry for entry in old} | {result.name: asdict(result) for result in results}
    entries = [by_name[name] for name in sorted(by_name)]
    RESULTS.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    TABLE.write_text(table(entries), encoding="utf-8")


def table(entries: list[dict[str, object]]) -> str:
    """The results as a Markdown table."""
    lines = ["| name | value | unit | goal | met | machine | version |", "| --- | ---: | --- | --- | --- | --- | --- |"]
    for entry in entries:
        met = "yes" if entry["met"] else "no"
        cells = (entry["name"], entry["value"], entry["unit"], entry["goal"], met, entry["machine"], entry["version"])
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"
