"""How fast chains move, by kernel, at equal target: effective samples and squared jumps of the energy.

Every kernel starts from the same chains and gets the same time. ESS (bulk, ArviZ) is over all chains, the first tenth
thrown away, its relative error by the jackknife over chains. An ESS below `FLOOR` times the chains says nothing (chains
that never move have about one each), and is not shown. Beside it stands the mean squared jump of the energy,
Σ_s (E(x_{s+1}) − E(x_s))²: with one target, the larger it is, the smaller is the correlation of neighbours (Pasarica &
Gelman 2010, Statistica Sinica 20, 343). It knows nothing of slow modes, and has far less noise.

`plain` is the single-site kernel without shortcuts. `single-site` makes the same chain, and so does the textbook loop:
`shortcuts` and `vs_textbook` are ratios of the time of equal steps. For all others the jumps a second are divided by
those of the plain kernel, which are known best per step from `single-site`, the longer run of that chain.

On a machine that is busy otherwise, MASKROPOLIS_BENCH_CLOCK=cpu counts processor time on one thread instead;
MASKROPOLIS_BENCH_SECONDS sets the time of each kernel: ESS needs some ten minutes of it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
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
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
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
TRUSTED, FLOOR = 1 / 3, 5
"""A relative error above which a figure is shown and not used; effective samples a chain below which none is shown."""
STEPS = 40  # of the same chain, made by the plain kernel and with shortcuts
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
def measured(model: str, energy: str) -> tuple[dict[str, Mixing], dict[str, float]]:
    """Every kernel on one model and energy, and the ratios of equal steps."""
    network, start = {"english": _english, "reactions": _reactions}[model](energy)
    return compared(f"{model}-{energy}", network, start, energy, KERNELS)


def compared(
    name: str, network: HuggingFaceMaskedLM, start: Sequences, energy: str, kernels: tuple[str, ...]
) -> tuple[dict[str, Mixing], dict[str, float]]:
    """Every kernel from one start, kept in mixing.json under `name`, and the ratios of equal steps."""
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
    plain, short, book = same_chain(network, start, energy)
    ratios = {"shortcuts": plain / short, "textbook": book / plain}
    keep(name, found, ratios, len(start))
    return found, ratios


def same_chain(network: HuggingFaceMaskedLM, start: Sequences, energy: str) -> tuple[float, float, float]:
    """Seconds a step of the plain kernel, of single-site and of the textbook: one chain, as is checked.

    The textbook's work is the same at every step, so a few are enough.
    """
    streams, states, took = Streams(3, range(len(start))), [], []
    for specification in (PLAIN, "single-site"):
        kernel = build_kernel(specification, ENERGIES[energy])
        state, spent = kernel.init(network, start), 0.0
        for step in range(STEPS):
            begin = CLOCK()
            state, _ = kernel.step(network, state, 1.0, streams.uniforms(step, kernel.uniforms_per_step))
            spent += CLOCK() - begin
        states.append(state.sequences.tokens)
        took.append(spent / STEPS)
    if not torch.equal(*states):
        raise AssertionError("the plain kernel and single-site made different chains")
    book, uniforms = textbook_of(network, start, normalised=energy == "norm"), streams.uniforms(0, 3)
    return took[0], took[1], min(seconds(lambda: book.step(uniforms)) for _ in range(3))


def keep(name: str, found: dict[str, Mixing], ratios: dict[str, float], chains: int) -> None:
    """Put the figures of every kernel into mixing.json and its table."""
    old = json.loads(BY_KERNEL.read_text(encoding="utf-8")) if BY_KERNEL.exists() else {}
    new = {
        "kernels": {specification: _rounded(one) for specification, one in found.items()},
        "equal_steps": {name: float(f"{value:.3g}") for name, value in ratios.items()},
        "machine": machine(),
        "seconds": SECONDS,
        "chains": chains,
    }
    results = old | {name: new}
    BY_KERNEL.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    BY_KERNEL_TABLE.write_text("\n".join(_table(name, results[name]) for name in sorted(results)), encoding="utf-8")


def _rounded(one: Mixing) -> dict[str, float]:
    return {key: float(f"{value:.3g}") for key, value in asdict(one).items()}


def _table(name: str, results: dict[str, Any]) -> str:
    """One model and energy: effective samples and squared jumps, and how many times those of the plain kernel."""
    kernels, equal = results["kernels"], results["equal_steps"]
    plain = kernels["single-site"]["squared_jump_per_step"] * kernels[PLAIN]["steps_per_second"]
    lines = [
        f"## {name}\n\nIn the time of a step of a textbook loop the plain kernel makes {equal['textbook']} of the same "
        f"chain, and single-site {equal['shortcuts']} in that of a plain one. {results['seconds']:g} s a kernel.\n",
        "| kernel | ESS per second | squared jump of E per second | times plain | per 1,000 rows | acceptance "
        "| rows a step | steps a second |\n| --- |" + 7 * " ---: |",
    ]
    for kernel, one in sorted(kernels.items(), key=lambda pair: -pair[1]["squared_jump_per_second"]):
        jump, rows = one["squared_jump_per_second"], one["rows_per_step"] * results["chains"]
        cells = (
            f"`{kernel}`", effective(one, results), f"{jump} ± {one['squared_jump_relative_error']:.0%}",
            f"{jump / plain:.2f}", f"{1000 * one['squared_jump_per_step'] / rows:.3g}", one["acceptance"],
            one["rows_per_step"], one["steps_per_second"] or "–",
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def effective(one: dict[str, float], results: dict[str, Any]) -> str:
    """Effective samples a second, or a dash where they are too few to say anything."""
    if one["per_second"] * results["seconds"] < FLOOR * results["chains"]:
        return "–"
    return f"{one['per_second']} ± {one['relative_error']:.0%}"


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


Figures = tuple[dict[str, Mixing], dict[str, float]]


def register(prefix: str, energy: str, measure: Callable[[str], Figures]) -> None:
    """The four figures of one model and energy; `measure` is asked once and remembers."""

    def add(name: str, unit: str, goal: float, figure: Callable[[Figures], float]) -> None:
        @benchmark(f"{prefix}.{name}.{energy}", unit=unit, goal=Goal(goal))
        def ratio() -> float:
            return figure(measure(energy))

    jumps = "times the squared energy jump a second"
    add("shortcuts", "times the steps a second, same chain", 1, lambda found: found[1]["shortcuts"])
    add("best_vs_single_site", jumps, 3, lambda found: best(*found))
    add("best_vs_textbook", jumps, 10, lambda found: best(*found) * found[1]["textbook"])


def best(found: dict[str, Mixing], ratios: dict[str, float]) -> float:
    """Squared jumps a second of the kernel with most of them, of those that are known well enough, in those of the
    plain one; single-site is known to have its steps."""
    plain = found["single-site"].squared_jump_per_step * found[PLAIN].steps_per_second
    known = [one for one in found.values() if one.squared_jump_relative_error < TRUSTED]
    return max(ratios["shortcuts"], *(one.squared_jump_per_second / plain for one in known))


for _energy in ("norm", "raw"):
    register("mixing", _energy, partial(measured, "english"))
    register("mixing.reactions", _energy, partial(measured, "reactions"))
