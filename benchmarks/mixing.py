"""Effective samples of the energy, by kernel, at equal target: per 1,000 model rows and per second.

Every kernel starts from the same chains and gets the same time; ESS (bulk, ArviZ) is over all chains, the first tenth
thrown away, its relative error by the jackknife over chains. Beside it stands the mean squared jump of the energy per
second, Σ_s (E(x_{s+1}) − E(x_s))²: with one target, the larger it is, the smaller is the correlation of neighbours
(Pasarica & Gelman 2010, Statistica Sinica 20, 343). It knows nothing of slow modes, and has far less noise.

`plain` is the single-site kernel without shortcuts. `single-site` and the textbook make the plain kernel's chain, so
they are compared by their steps per second alone, and "times plain" divides by the squared jumps of that chain. Of the
other kernels, `best` passes over those whose error is a third or more: a chain that hardly moves has an ESS that means
nothing. On a machine that is busy otherwise, MASKROPOLIS_BENCH_CLOCK=cpu counts processor time on one thread instead;
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
import numpy as np
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
    "staged:kernel=path(k=2),terms=4",
    "staged:kernel=path(k=4),terms=4",
    "delayed:kernel=single-site,surrogate=grouped/3",
    "informed",
    "mixture:informed=1,single-site=1",
    "gwg:top_k=50",
    "discrete-langevin:top_k=50",
    "tempering:kernel=informed",
)
TRUSTED = 1 / 3
"""Of relative errors; above, a figure is shown and not used."""
REACTION = "CC(=O)Cl.NCC>>CC(=O)NCC"


@dataclass(frozen=True)
class Mixing:
    """What one kernel reached, all chains together: effective samples of the energy per 1,000 rows, per second and per
    step, with their relative standard error; squared jumps of the energy likewise; tokens changed per second."""

    per_thousand_rows: float
    per_second: float
    per_step: float
    relative_error: float
    squared_jump_per_second: float
    squared_jump_per_step: float
    squared_jump_relative_error: float
    changed_per_second: float
    acceptance: float
    rows_per_step: float
    steps_per_second: float


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
    """Every kernel on one model and energy, and the textbook's steps per second."""
    network, start = {"english": _english, "reactions": _reactions}[model](energy)
    return compared(f"{model}-{energy}", network, start, energy, KERNELS)


def compared(
    name: str, network: HuggingFaceMaskedLM, start: Sequences, energy: str, kernels: tuple[str, ...]
) -> tuple[dict[str, Mixing], float]:
    """Every kernel from one start, kept in mixing.json under `name`, and the textbook's steps per second."""
    if CLOCK is time.process_time:
        torch.set_num_threads(1)
    found = {}
    for specification in kernels:
        found[specification] = one = mixing_of(network, start, specification, energy)
        print(
            f"  {name}: {specification}: {one.per_thousand_rows:.3g} ESS per 1,000 rows, {one.per_second:.3g} ESS per "
            f"second ± {one.relative_error:.0%}, squared jump {one.squared_jump_per_second:.3g} "
            f"± {one.squared_jump_relative_error:.0%}",
            flush=True,
        )
    book = textbook_of(network, start, normalised=energy == "norm")
    uniforms = Streams(3, range(len(start))).uniforms(0, 3)
    steps = 1 / min(seconds(lambda: book.step(uniforms)) for _ in range(3))
    keep(name, found, steps)
    return found, steps


def keep(name: str, found: dict[str, Mixing], textbook: float) -> None:
    """Put the figures of every kernel into mixing.json and its table."""
    old = json.loads(BY_KERNEL.read_text(encoding="utf-8")) if BY_KERNEL.exists() else {}
    new = {
        "kernels": {specification: _rounded(one) for specification, one in found.items()},
        "textbook_steps_per_second": float(f"{textbook:.3g}"),
        "machine": machine(),
        "seconds": SECONDS,
    }
    results = old | {name: new}
    BY_KERNEL.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    BY_KERNEL_TABLE.write_text("\n".join(_table(name, results[name]) for name in sorted(results)), encoding="utf-8")


def _rounded(one: Mixing) -> dict[str, float]:
    return {key: float(f"{value:.3g}") for key, value in asdict(one).items()}


def _table(name: str, results: dict[str, Any]) -> str:
    """One model and energy: effective samples and squared jumps, and how many times those of the plain kernel."""
    kernels = results["kernels"]
    plain = kernels[PLAIN]
    plain_jump = kernels["single-site"]["squared_jump_per_step"] * plain["steps_per_second"]
    lines = [
        f"## {name}\n\nA textbook loop, whose chain is the plain kernel's, makes "
        f"{results['textbook_steps_per_second']} steps of all chains a second; {results['seconds']:g} s a kernel.\n",
        "| kernel | ESS per 1,000 rows | ESS per second | times plain | squared jump per second | times plain "
        "| acceptance | rows a step | steps a second |\n| --- |" + 8 * " ---: |",
    ]
    for kernel, one in sorted(kernels.items(), key=lambda pair: -pair[1]["squared_jump_per_second"]):
        jump = one["squared_jump_per_second"]
        cells = (
            f"`{kernel}`", one["per_thousand_rows"], f"{one['per_second']} ± {one['relative_error']:.0%}",
            f"{one['per_second'] / plain['per_second']:.2f}", f"{jump} ± {one['squared_jump_relative_error']:.0%}",
            f"{jump / plain_jump:.2f}", one["acceptance"], one["rows_per_step"],
            one["steps_per_second"],
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def mixing_of(model: HuggingFaceMaskedLM, start: Sequences, specification: str, energy: str) -> Mixing:
    """Run one kernel for SECONDS."""
    kernel, streams = build_kernel(specification, ENERGIES[energy]), Streams(3, range(len(start)))
    state, energies, rows, changed, accepted, spent = kernel.init(model, start), [], 0, 0, 0.0, 0.0
    first = state.energy
    while spent < SECONDS or len(energies) < 20:
        begin = CLOCK()
        state, info = kernel.step(model, state, 1.0, streams.uniforms(len(energies), kernel.uniforms_per_step))
        spent += CLOCK() - begin
        rows, changed = rows + info.rows, changed + int(info.changed.sum())
        accepted += float(info.accepted.double().mean())
        energies.append(state.energy)
    steps = len(energies)
    values = torch.stack(energies, 1)
    by_chain = torch.cat([first[:, None], values], 1).diff(dim=1).square().sum(1)
    jumps = float(by_chain.sum())
    kept = values[:, steps // 10 :].numpy()
    moved = jumps > 0
    effective = float(arviz.ess(kept)) * steps / kept.shape[1] if moved else 0.0
    return Mixing(
        per_thousand_rows=1000 * effective / max(1, rows),
        per_second=effective / spent,
        per_step=effective / steps,
        relative_error=_relative_error(kept) if moved else 1.0,
        squared_jump_per_second=jumps / spent,
        squared_jump_per_step=jumps / steps,
        squared_jump_relative_error=float(by_chain.std() / len(start) ** 0.5 / by_chain.mean()) if moved else 1.0,
        changed_per_second=changed / spent,
        acceptance=accepted / steps,
        rows_per_step=rows / steps / len(start),
        steps_per_second=steps / spent,
    )


def _relative_error(energies: np.ndarray) -> float:
    """Of the effective samples of `energies` [C, S], by the jackknife over chains."""
    chains = len(energies)
    without = np.log([float(arviz.ess(np.delete(energies, c, axis=0))) for c in range(chains)])
    return float(np.sqrt((chains - 1) * without.var()))


def _register(model: str, energy: str) -> None:
    prefix = "mixing" if model == "english" else f"mixing.{model}"

    def add(name: str, unit: str, goal: float, figure: Callable[[dict[str, Mixing], float], float]) -> None:
        @benchmark(f"{prefix}.{name}.{energy}", unit=unit, goal=Goal(goal))
        def ratio() -> float:
            found, textbook = measured(model, energy)
            return figure(found, textbook)

    unit, jumps = "times the effective samples a second", "times the squared energy jump a second"
    add("shortcuts", "times the steps a second, same chain", 1, lambda found, _: shortcuts(found))
    add("staged", "times the steps a second, same proposals", 1, lambda found, _: staged(found))
    add("best_vs_single_site", unit, 3, lambda found, _: best(found))
    add(
        "best_vs_textbook",
        unit,
        10,
        lambda found, book: best(found) * lead(found, book),
    )
    add("jump.best_vs_single_site", jumps, 3, lambda found, _: best_jump(found))


def shortcuts(found: dict[str, Mixing]) -> float:
    """Steps a second of single-site with its shortcuts, in those without."""
    return found["single-site"].steps_per_second / found[PLAIN].steps_per_second


def staged(found: dict[str, Mixing]) -> float:
    """Steps a second of `staged`, in those of plain single-site: the same proposals, a little fewer accepted."""
    return found["staged"].steps_per_second / found[PLAIN].steps_per_second


def lead(found: dict[str, Mixing], textbook: float) -> float:
    """Steps a second of the plain kernel, in those of the textbook."""
    return found[PLAIN].steps_per_second / textbook


def best(found: dict[str, Mixing]) -> float:
    """The most effective samples a second that are known well enough, in those of the plain kernel."""
    known = [one.per_second / found[PLAIN].per_second for one in found.values() if one.relative_error < TRUSTED]
    return max(shortcuts(found), *known)


def best_jump(found: dict[str, Mixing]) -> float:
    """The same of squared jumps. Those of the plain kernel are known best from single-site, which makes more steps of
    the same chain."""
    plain = found["single-site"].squared_jump_per_step * found[PLAIN].steps_per_second
    known = [one for one in found.values() if one.squared_jump_relative_error < TRUSTED]
    return max(shortcuts(found), *(one.squared_jump_per_second / plain for one in known))


for _model in ("english", "reactions"):
    for _energy in ("norm", "raw"):
        _register(_model, _energy)
