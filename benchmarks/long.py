"""Longer sentences: the mean squared jump of the energy per second, by kernel, at 30 free tokens.

Effective samples of so long a chain take hours of plain single-site steps, so this measures what the first
autocorrelation is made of: E[(E(x_{s+1}) − E(x_s))²] per step, a chain's own steps added up to seconds. With one target
a larger one is a smaller correlation of neighbours (Pasarica & Gelman 2010, Statistica Sinica 20, 343). It says nothing
of slow modes; those are seen in `mixing` at 10 tokens. Clock and seconds as in `mixing`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from benchmarks.harness import FOLDER, Goal, benchmark, machine
from benchmarks.mh_step import seconds, textbook_of
from benchmarks.mixing import SECONDS
from benchmarks.models import bundled
from benchmarks.score import CLOCK
from benchmarks.work import PLAIN, burnt_in
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.huggingface import HuggingFaceMaskedLM
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import ENERGIES

SENTENCE = (
    "when the old man came back to the house that evening he sat down by the fire and told the children a long story "
    "about the sea and the ships"
)
N, CHAINS, LEAST = len(SENTENCE.split()), 8, 12
BY_KERNEL, BY_KERNEL_TABLE = FOLDER / "long.json", FOLDER / "long.md"
KERNELS = (
    PLAIN,
    "single-site",
    "path:k=2",
    "path:k=4",
    "path:k=8",
    "staged",
    "staged:kernel=path(k=4)",
    "staged:kernel=path(k=8)",
    "block:k=4",
    "informed",
)


@dataclass(frozen=True)
class Jumps:
    """What one kernel reached, all chains together; `acceptance` of proposals, one number a step."""

    squared_jump_per_second: float
    squared_jump_per_thousand_rows: float
    changed_per_second: float
    acceptance: float
    rows_per_step: float
    steps: int


def jumps_of(model: HuggingFaceMaskedLM, start: Sequences, specification: str, energy: str) -> Jumps:
    """Run one kernel for `mixing.SECONDS`, and for `LEAST` steps at the least."""
    kernel, streams = build_kernel(specification, ENERGIES[energy]), Streams(3, range(len(start)))
    state, jumped, changed, accepted, rows, steps, spent = kernel.init(model, start), 0.0, 0, 0.0, 0, 0, 0.0
    while spent < SECONDS or steps < LEAST:
        before, begin = state.energy, CLOCK()
        state, info = kernel.step(model, state, 1.0, streams.uniforms(steps, kernel.uniforms_per_step))
        spent += CLOCK() - begin
        jumped += float((state.energy - before).square().sum())
        changed += int(info.changed.sum())
        accepted += float(info.accepted.double().mean())
        rows, steps = rows + info.rows, steps + 1
    per_step = rows / steps / len(start)
    return Jumps(jumped / spent, 1000 * jumped / max(1, rows), changed / spent, accepted / steps, per_step, steps)


@cache
def measured(energy: str) -> tuple[dict[str, Jumps], float]:
    """Every kernel, and the textbook's squared jump per second: the plain chain's per step, at the textbook's time."""
    if CLOCK is time.process_time:
        torch.set_num_threads(1)
    model = bundled()
    start = burnt_in(model, energy, SENTENCE, CHAINS)
    found = {}
    for specification in KERNELS:
        found[specification] = one = jumps_of(model, start, specification, energy)
        print(f"  {energy}: {specification}: {one.squared_jump_per_second:.3g} a second, {one.steps} steps", flush=True)
    plain = found[PLAIN]
    per_step = plain.squared_jump_per_thousand_rows / 1000 * plain.rows_per_step * CHAINS
    book, uniforms = textbook_of(model, start, normalised=energy == "norm"), Streams(3, range(CHAINS)).uniforms(0, 3)
    textbook = per_step / min(seconds(lambda: book.step(uniforms)) for _ in range(3))
    _keep(energy, found, textbook)
    return found, textbook


def _keep(energy: str, found: dict[str, Jumps], textbook: float) -> None:
    """Put the figures of every kernel into long.json and its table."""
    old = json.loads(BY_KERNEL.read_text(encoding="utf-8")) if BY_KERNEL.exists() else {}
    kernels = {name: {key: float(f"{value:.3g}") for key, value in asdict(one).items()} for name, one in found.items()}
    new = {"kernels": kernels, "textbook_per_second": float(f"{textbook:.3g}")}
    results = old | {energy: new | {"machine": machine(), "seconds": SECONDS, "free": N, "chains": CHAINS}}
    BY_KERNEL.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    BY_KERNEL_TABLE.write_text("\n".join(_table(name, results[name]) for name in sorted(results)), encoding="utf-8")


def _table(energy: str, results: dict[str, Any]) -> str:
    kernels = results["kernels"]
    lines = [
        f"## {results['free']} tokens, {energy}\n\nA textbook loop has {results['textbook_per_second']} a second.\n",
        "| kernel | squared jump of E per second | times the plain kernel's | tokens changed per second | acceptance "
        "| rows a step |\n| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kernel, one in sorted(kernels.items(), key=lambda pair: -pair[1]["squared_jump_per_second"]):
        speed = one["squared_jump_per_second"]
        times = speed / kernels[PLAIN]["squared_jump_per_second"]
        more = f"{one['changed_per_second']} | {one['acceptance']} | {one['rows_per_step']}"
        lines.append(f"| `{kernel}` | {speed} | {times:.2f} | {more} |")
    return "\n".join(lines) + "\n"


def _register(energy: str) -> None:
    def add(name: str, goal: float, figure: Callable[[dict[str, Jumps], float], float]) -> None:
        @benchmark(f"mixing.long.{name}.{energy}", unit="times the squared energy jump a second", goal=Goal(goal))
        def ratio() -> float:
            return figure(*measured(energy))

    def best(found: dict[str, Jumps]) -> float:
        return max(one.squared_jump_per_second for one in found.values())

    add("best_vs_single_site", 3, lambda found, _: best(found) / found[PLAIN].squared_jump_per_second)
    add("best_vs_textbook", 10, lambda found, textbook: best(found) / textbook)


for _energy in ("norm", "raw"):
    _register(_energy)
