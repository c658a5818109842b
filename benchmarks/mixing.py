"""Effective samples of the energy, by kernel, at equal target: per 1,000 model rows and per second.

Every kernel starts from the same chains and gets the same time; ESS (bulk, ArviZ) is over all chains, the first tenth
thrown away. `plain` is the single-site kernel without shortcuts. The textbook's chain is the plain one, so its
effective samples a second are those of the plain chain per step, at the textbook's measured time per step.
On a machine that is busy otherwise, MASKROPOLIS_BENCH_CLOCK=cpu counts processor time on one thread instead;
MASKROPOLIS_BENCH_SECONDS sets the time of each kernel.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import arviz
import torch

from benchmarks.harness import FOLDER, Goal, benchmark, machine
from benchmarks.mh_step import seconds, textbook_of
from benchmarks.models import bundled
from benchmarks.score import CLOCK
from benchmarks.work import CHAINS, PLAIN, burnt_in
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.huggingface import HuggingFaceMaskedLM
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import ENERGIES

BY_KERNEL, BY_KERNEL_TABLE = FOLDER / "mixing.json", FOLDER / "mixing.md"
SECONDS = float(os.environ.get("MASKROPOLIS_BENCH_SECONDS", "120"))
KERNELS = (
    PLAIN,
    "single-site",
    "block",
    "path:k=2",
    "path:k=4",
    "staged",
    "staged:kernel=single-site,terms=3",
    "delayed:kernel=path(k=2)",
    "delayed:kernel=single-site,surrogate=grouped/3",
    "informed",
    "mixture:informed=1,single-site=1",
    "gwg:top_k=50",
    "discrete-langevin:top_k=50",
    "tempering:kernel=informed",
)
REACTION = "CC(=O)Cl.NCC>>CC(=O)NCC"


@dataclass(frozen=True)
class Mixing:
    """What one kernel reached: effective samples per 1,000 rows and per second, and per step of all chains."""

    per_thousand_rows: float
    per_second: float
    per_step: float


def reactions() -> HuggingFaceMaskedLM:
    """The ALBERT of rxnmapper."""
    found = importlib.util.find_spec("rxnmapper")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("error: this benchmark needs rxnmapper==0.4.3; run `make bench`")
    folder = Path(found.submodule_search_locations[0]) / "models/transformers/albert_heads_8_uspto_all_1310k"
    return HuggingFaceMaskedLM.from_pretrained(str(folder), tokenizer="smiles", allow_pickle=True)


def _english(energy: str) -> tuple[HuggingFaceMaskedLM, Sequences]:
    model = bundled()
    return model, burnt_in(model, energy)


def _reactions(energy: str) -> tuple[HuggingFaceMaskedLM, Sequences]:
    model = reactions()
    return model, model.codec.encode([REACTION] * CHAINS)


@cache
def measured(model: str, energy: str) -> tuple[dict[str, Mixing], float]:
    """Every kernel on one model and energy, and the textbook's effective samples per second."""
    if CLOCK is time.process_time:
        torch.set_num_threads(1)
    network, start = {"english": _english, "reactions": _reactions}[model](energy)
    found = {}
    for specification in KERNELS:
        found[specification] = one = mixing_of(network, start, specification, energy)
        print(
            f"  {model}, {energy}: {specification}: {one.per_thousand_rows:.3g} ESS per 1,000 rows, "
            f"{one.per_second:.3g} ESS per second",
            flush=True,
        )
    book = textbook_of(network, start, normalised=energy == "norm")
    uniforms = Streams(3, range(CHAINS)).uniforms(0, 3)
    step = min(seconds(lambda: book.step(uniforms)) for _ in range(3))
    textbook = found[PLAIN].per_step / step
    keep(f"{model} {energy}", found, textbook)
    return found, textbook


def keep(name: str, found: dict[str, Mixing], textbook: float) -> None:
    """Put the figures of every kernel into mixing.json and its table."""
    old = json.loads(BY_KERNEL.read_text(encoding="utf-8")) if BY_KERNEL.exists() else {}
    kernels = {specification: _rounded(one) for specification, one in found.items()}
    new = {
        "kernels": kernels,
        "textbook_per_second": float(f"{textbook:.3g}"),
        "machine": machine(),
        "seconds": SECONDS,
    }
    results = old | {name: new}
    BY_KERNEL.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    BY_KERNEL_TABLE.write_text("\n".join(_table(name, results[name]) for name in sorted(results)), encoding="utf-8")


def _rounded(one: Mixing) -> dict[str, float]:
    return {key: float(f"{value:.3g}") for key, value in asdict(one).items()}


def _table(name: str, results: dict[str, Any]) -> str:
    """One model and energy: effective samples of the energy, and how many times those of the plain kernel."""
    kernels = results["kernels"]
    lines = [
        f"## {name}\n\nA textbook loop has {results['textbook_per_second']} effective samples a second.\n",
        "| kernel | per 1,000 rows | per second | times the plain kernel's |\n| --- | ---: | ---: | ---: |",
    ]
    for kernel, one in sorted(kernels.items(), key=lambda pair: -pair[1]["per_second"]):
        times = one["per_second"] / kernels[PLAIN]["per_second"]
        lines.append(f"| `{kernel}` | {one['per_thousand_rows']} | {one['per_second']} | {times:.2f} |")
    return "\n".join(lines) + "\n"


def mixing_of(model: HuggingFaceMaskedLM, start: Sequences, specification: str, energy: str) -> Mixing:
    """Run one kernel for SECONDS."""
    kernel, streams = build_kernel(specification, ENERGIES[energy]), Streams(3, range(len(start)))
    state, energies, rows, spent = kernel.init(model, start), [], 0, 0.0
    while spent < SECONDS or len(energies) < 20:
        begin = CLOCK()
        state, info = kernel.step(model, state, 1.0, streams.uniforms(len(energies), kernel.uniforms_per_step))
        spent += CLOCK() - begin
        rows += info.rows
        energies.append(state.energy)
    kept = torch.stack(energies[len(energies) // 10 :], 1).numpy()
    effective = float(arviz.ess(kept)) * len(energies) / kept.shape[1]
    return Mixing(1000 * effective / max(1, rows), effective / spent, effective / len(energies))


def _register(model: str, energy: str) -> None:
    prefix = "mixing" if model == "english" else f"mixing.{model}"

    def add(name: str, goal: float, figure: Callable[[dict[str, Mixing], float], float]) -> None:
        @benchmark(f"{prefix}.{name}.{energy}", unit="times the effective samples a second", goal=Goal(goal))
        def ratio() -> float:
            found, textbook = measured(model, energy)
            return figure(found, textbook)

    def best(found: dict[str, Mixing]) -> float:
        return max(one.per_second for one in found.values())

    add("best_vs_single_site", 3, lambda found, _: best(found) / found[PLAIN].per_second)
    add("best_vs_textbook", 10, lambda found, textbook: best(found) / textbook)


for _model in ("english", "reactions"):
    for _energy in ("norm", "raw"):
        _register(_model, _energy)
