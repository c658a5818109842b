"""Fills one cell of the study: the walk, then everything that is measured of its samples."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np
from cells import CANDIDATES, COOLING, SYSTEMS, Cell, Settings
from measures import Texts, convergence, energies
from sentences_of_length import divided
from walks import Walk, half_masked, tokens_as, walk, write

from maskropolis.decoders.fill import fill
from maskropolis.evaluation.judging.judge import Judge
from maskropolis.kernels import KERNELS
from maskropolis.kernels.base import Kernel
from maskropolis.kernels.specification import build_kernel
from maskropolis.randomness import START, Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import energy_by_name

REAL, RANDOM, GREEDY = "held-out sentences", "random tokens", "greedy fill"
EXAMPLES = 5


@dataclass(frozen=True, eq=False)
class Study:
    """What all cells share. `sentences`: real ones by length. `best`: specification of the best exact kernel."""

    model: Any
    judge: Judge
    settings: Settings
    sentences: dict[int, list[str]]
    best: str
    folder: Path

    def fill(self, cell: Cell) -> dict[str, Any]:
        """The entry of a cell in results.json; all of its texts go to `samples/`."""
        made = self._diffusion(cell) if cell.system.kernel is None else self._chains(cell)
        return {
            "system": cell.system.name,
            "length": cell.length,
            "start": cell.start,
            "temperature": cell.temperature,
            **made,
        }

    def blank(self, length: int, count: int) -> Sequences:
        """`count` sequences of `length` masks."""
        return self.model.codec.blank([length] * count)

    def texts(self, length: int) -> tuple[list[str], list[str]]:
        """(starts, reference) of a length; see `divided`."""
        return divided(self.sentences[length], self.settings.chains, self.settings.samples, length)

    def start(self, cell: Cell, count: int) -> tuple[Sequences, int]:
        """Where `count` chains begin, and the rows that it cost: masks filled by one draw each, or real sentences."""
        if cell.start == "text":
            return self.model.codec.encode(self.texts(cell.length)[0][:count]), 0
        blank = self.blank(cell.length, count)
        uniforms = Streams(self.settings.seed, range(count), START).uniforms(0, blank.width)
        return fill(self.model, blank, "sampled", uniforms), count

    def kernel(self, cell: Cell) -> Kernel:
        named = self.best if cell.system.kernel == "best" else str(cell.system.kernel)
        return build_kernel(named, energy_by_name(cell.system.energy))

    def _chains(self, cell: Cell) -> dict[str, Any]:
        settings, kernel = self.settings, self.kernel(cell)
        start, paid = self.start(cell, settings.chains)
        last = COOLING if cell.system.annealed else 1.0

        def temperature(share: float) -> float:
            return cell.temperature * last ** min(share, 1.0)

        found = walk(self.model, kernel, start, settings.rows, settings.marks, settings.seed, temperature, paid)
        sweep = kernel.steps_per_sweep(cell.length)
        kept = found.tokens[-settings.kept :]
        chains = np.tile(np.arange(settings.chains), settings.kept)
        every = max(1, settings.kept // settings.measured)
        some = kept[::-1][::every][: settings.measured][::-1]  # the last state is among them
        both = self._energies(start, some)
        return {
            "kernel": kernel.signature(),
            "energy": cell.system.energy if kernel.exact else None,
            "target": "annealed" if cell.system.annealed else "exact" if kernel.exact else "none",
            "sweeps": round(int(found.steps[-1]) / sweep, 2),
            "acceptance": round(float(found.accepted.mean()), 4) if kernel.exact else None,
            "acceptance_by_chain": _rounded(found.accepted),
            "changed_by_chain": _rounded(found.changed),
            "start_left": round(_same(start, found.tokens[-1]), 4),
            "convergence": self._convergence(cell, found, both),
            **self._costs(int(found.rows[-1]), found.seconds, found.processor_seconds),
            **self._judged(cell, kept.reshape(-1, start.width), start, chains.tolist()),
            "energies": both,
            "curve": self._curve(cell, found, start, sweep),
        }

    def _diffusion(self, cell: Cell) -> dict[str, Any]:
        count = self.settings.samples
        if cell.start == "text":
            starts, reference = self.texts(cell.length)
            own = [text for text in starts if text not in set(reference)]
            texts = list(itertools.islice(itertools.cycle(own), count))  # masked anew each time
            begun = half_masked(self.model, self.model.codec.encode(texts), self.settings.seed)
        else:
            begun = self.blank(cell.length, count)
        found = write(self.model, begun, self.settings.rows, self.settings.seed, cell.temperature)
        some = found.tokens[: self.settings.chains * self.settings.measured]
        return {
            "kernel": found.signature,
            "energy": None,
            "target": "none",
            **self._costs(found.rows, found.seconds, found.processor_seconds),
            **self._judged(cell, found.tokens, begun, list(range(count))),
            "energies": energies(self.model, tokens_as(begun, some), list(range(len(some)))),
        }

    def references(self, length: int) -> list[dict[str, Any]]:
        """The rows around the systems of a length: real sentences, random tokens, greedy fill."""
        count, codec = self.settings.samples, self.model.codec
        uniforms = Streams(self.settings.seed, range(count), START).uniforms(0, length + 2)
        blank = self.blank(length, count)
        rows = {
            REAL: codec.encode(self.texts(length)[1]),
            RANDOM: fill(self.model, blank, "random", uniforms),
            GREEDY: fill(self.model, self.blank(length, 1), "greedy", uniforms[:1]),
        }
        made = []
        for name, sequences in rows.items():
            texts = Texts.of(codec.decode(sequences), range(len(sequences)), self.judge)
            some = sequences.tokens.numpy()[: self.settings.chains * self.settings.measured]
            entry: dict[str, Any] = {"system": name, "length": length, "samples": len(sequences)}
            entry["judge"] = {"perplexity": texts.perplexity(), "word_perplexity": texts.word_perplexity()}
            entry["energies"] = energies(self.model, tokens_as(sequences, some), range(len(some)))
            entry["diversity"] = texts.diversity() if len(sequences) > 1 else None
            made.append(entry | {"examples": list(texts.texts[:EXAMPLES])})
        return made

    def _costs(self, rows: int, seconds: float, processor: float) -> dict[str, Any]:
        return {"rows": rows, "seconds": round(seconds, 2), "processor_seconds": round(processor, 2)}

    def _energies(self, start: Sequences, tokens: np.ndarray) -> dict[str, Any]:
        """Of `tokens` [D, C, T]."""
        draws, chains = tokens.shape[:2]
        owners = np.tile(np.arange(chains), draws).tolist()
        found = energies(self.model, tokens_as(start, tokens.reshape(-1, start.width)), owners)
        return found | {"last_norm_by_chain": found["norm"][-chains:], "last_raw_by_chain": found["raw"][-chains:]}

    def _convergence(self, cell: Cell, found: Walk, both: dict[str, Any]) -> dict[str, Any]:
        """R-hat and ESS of the target's energy; of the norm energy of few states where the kernel tracks none."""
        if cell.system.annealed:
            return convergence(np.empty((self.settings.chains, 0)), "none: the target moves")
        energy = found.settled_energy()
        if not energy.shape[1]:
            states = np.array(both["norm"]).reshape(-1, self.settings.chains).T
            return convergence(states, "measured states, norm energy")
        made = convergence(energy, f"steps of the second half, {cell.system.energy} energy")
        half = found.processor_seconds / 2
        for name, spent in (("per_1000_rows", found.rows[-1] / 2000), ("per_second", half)):
            made[f"ess_{name}"] = round(made["ess"] / spent, 4) if made["ess"] and spent else None
        return made

    def _judged(self, cell: Cell, tokens: np.ndarray, like: Sequences, chains: list[int]) -> dict[str, Any]:
        """Judge and diversity of `tokens` [N, T], which came from `chains` [N]."""
        texts = self.model.codec.decode(tokens_as(like, tokens))
        lines = (json.dumps({"chain": c, "text": t}, ensure_ascii=False) for c, t in zip(chains, texts, strict=True))
        (self.folder / "samples" / f"{cell.name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        judged = Texts.of(texts, chains, self.judge)
        by_chain = judged.by_chain() if len(set(chains)) <= self.settings.chains else None
        return {
            "samples": len(texts),
            "judge": {
                "perplexity": judged.perplexity(),
                "word_perplexity": judged.word_perplexity(),
                "log_by_chain": by_chain,
            },
            "diversity": judged.diversity(),
            "examples": texts[-EXAMPLES:],
        }

    def _curve(self, cell: Cell, found: Walk, start: Sequences, sweep: int) -> list[dict[str, Any]] | None:
        """Norm energy and judge perplexity on the way, the start first."""
        settings = self.settings
        if cell.length != settings.curve_length or cell.temperature != 1.0:
            return None
        points = []
        for mark in np.linspace(0, settings.marks, settings.curve + 1).round().astype(int).tolist():
            sequences = tokens_as(start, found.tokens[mark])
            chains = range(settings.chains)
            texts = Texts.of(self.model.codec.decode(sequences), chains, self.judge)
            points.append(
                {
                    "rows": int(found.rows[mark]),
                    "sweeps": round(int(found.steps[mark]) / sweep, 3),
                    "norm_per_token": energies(self.model, sequences, chains)["norm_per_token"],
                    "perplexity": texts.perplexity(),
                }
            )
        return points


def _same(start: Sequences, tokens: np.ndarray) -> float:
    """Share of the free positions that hold what they held at the start."""
    free = start.free.numpy()
    return float((start.tokens.numpy() == tokens)[free].mean())


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 5) for value in values]


def pilot(model: Any, settings: Settings, length: int, candidates: tuple[str, ...] = CANDIDATES) -> dict[str, Any]:
    """Exact kernels at equal rows, from masks at τ = 1: R-hat, ESS of the norm energy a 1,000 rows and a second.

    The best by the first, of those whose target is reached at all (R-hat below 1.2, if there is one), that no system
    of its own stands for.
    """
    blank = model.codec.blank([length] * settings.chains)
    uniforms = Streams(settings.seed, range(settings.chains), START).uniforms(0, blank.width)
    start = fill(model, blank, "sampled", uniforms)
    listed = []
    for named in candidates:
        if named.partition(":")[0].partition("(")[0] not in KERNELS:
            continue
        kernel = build_kernel(named, energy_by_name("norm"))
        found = walk(
            model, kernel, start, settings.rows, settings.marks, settings.seed, lambda share: 1.0, settings.chains
        )
        made = convergence(found.settled_energy(), "steps of the second half, norm energy")
        ess, rows = made["ess"] or 0.0, int(found.rows[-1])
        listed.append(
            {
                "kernel": named,
                "r_hat": made["r_hat"],
                "ess_per_1000_rows": round(2000 * ess / rows, 4),
                "ess_per_second": round(2 * ess / max(found.processor_seconds, 1e-9), 4),
                "acceptance": round(float(found.accepted.mean()), 4),
                "mean_norm": round(float(found.settled_energy().mean()), 3) if ess else None,
                "rows": rows,
            }
        )
    taken = {system.kernel for system in SYSTEMS}
    free = [one for one in listed if one["kernel"] not in taken]
    good = [one for one in free if (one["r_hat"] or np.inf) < 1.2] or free
    best = max(good, key=lambda one: one["ess_per_1000_rows"])["kernel"]
    return {"length": length, "candidates": listed, "best": best}


class Files:
    """The folder of the work: one file a cell, written when the cell is finished."""

    def __init__(self, folder: Path, made_with: dict[str, Any]) -> None:
        """Raises `InputError` if the folder holds cells that were made otherwise."""
        for name in ("cells", "samples"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.folder = folder
        known = folder / "study.json"
        if known.is_file():
            earlier = json.loads(known.read_text(encoding="utf-8"))
            for key, value in made_with.items():
                if earlier.get(key) != value:
                    raise common.InputError(
                        f"'{folder}' holds results made with {key} {earlier.get(key)}, not {value}; "
                        "name a new folder with --work, or ask for the same"
                    )
        else:
            common.write_json(known, made_with | {"made_on": common.circumstances()})

    def once(self, name: str, make: Any) -> Any:
        """What `make` returns, or returned when it was finished before."""
        path = self.folder / "cells" / f"{name}.json"
        if not path.is_file():
            began = time.perf_counter()
            found = make()
            common.write_json(path, found)
            print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
        return json.loads(path.read_text(encoding="utf-8"))
