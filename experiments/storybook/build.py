"""Builds storybook end to end: books archive, training, half-precision files in the package, figures, card.

    make model BOOKS=books.tar.xz
    python experiments/storybook/build.py --books books.tar.xz --minutes 90 [--resume]
    python experiments/storybook/build.py --books books.tar.xz --minutes 90 --further
    python experiments/storybook/build.py --short        # a minute, random weights, an excerpt; must lower the loss

Two processes with one thread each go faster than one with two where other work shares the processor:

    accelerate launch --cpu --num_processes 2 experiments/storybook/build.py --books books.tar.xz
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT / "src/maskropolis/models/storybook_data"
EXCERPT = ROOT / "tests/data/time_machine.txt"
RESULTS = HERE / "results.json"
sys.path.insert(0, str(HERE))

from recipe import INIT_RELEASE  # noqa: E402 (beside this file)


def main() -> None:
    arguments = _arguments()
    if arguments.short:
        return short(arguments.work / "short")
    books = unpack(arguments.books, arguments.work / "books")
    run = arguments.work / "run"
    if not arguments.measure_only and not train(books, run, arguments):
        return None
    return finish(run, books)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--books", type=Path, help="the archive of books, .tar.xz")
    parser.add_argument("--work", type=Path, default=ROOT / "runs/storybook", help="folder for text and checkpoints")
    parser.add_argument("--minutes", type=float, default=90.0, help="training time")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--further", action="store_true", help="start from the storybook in the package")
    parser.add_argument("--short", action="store_true", help="the one-minute version")
    parser.add_argument("--measure-only", action="store_true", help="pack and measure a finished run again")
    arguments = parser.parse_args()
    if not arguments.short and arguments.books is None:
        parser.error("--books is missing: the archive of books, or --short")
    if arguments.books is not None and not arguments.books.is_file():
        parser.error(f"there is no file '{arguments.books}'")
    return arguments


def unpack(archive: Path, folder: Path) -> Path:
    """The folder of books; unpacked once."""
    if not folder.is_dir():
        rough = folder.with_name("books.partial")
        with tarfile.open(archive) as tar:
            tar.extractall(rough, filter="data")
        rough.rename(folder)
    return folder


def train(books: Path, run: Path, arguments: argparse.Namespace) -> bool:
    """Whether this process is the one that goes on to pack and measure."""
    from recipe import further, storybook

    from maskropolis.training.masked.mlm import train_mlm

    command = ("make", "model", f"BOOKS={books.name}.tar.xz")
    options = further(books, arguments.minutes, DATA) if arguments.further else storybook(books, arguments.minutes)
    made = train_mlm(options, run, resume=arguments.resume, overwrite=not arguments.resume, command=command)
    return made is not None


def finish(folder: Path, books: Path) -> None:
    """Packs a finished run into the package, measures what was packed and writes the figures and the card."""
    from evaluation import evaluate
    from packing import pack
    from samples import samples

    pack(folder, DATA)
    record = json.loads((folder / "training.json").read_text())
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    earlier = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    kept = {key: earlier[key] for key in ("ablation",) if key in earlier}
    run = _training(record, points)
    before = [] if record["options"]["prune"] else earlier.get("runs", [])
    results = evaluate(DATA, books) | {
        "runs": [*before, run],
        "samples": samples(DATA),
    }
    RESULTS.write_text(json.dumps(results | kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_card()
    print(json.dumps({key: results[key] for key in ("bert_15", "single", "agreement", "bytes")}, indent=1))


def _training(record: dict[str, Any], points: list[dict[str, Any]]) -> dict[str, Any]:
    """What the run was told, how far it got, and its loss along the way; no paths of this machine."""
    further = record["options"]["prune"] is None
    start = "an earlier storybook" if further else INIT_RELEASE
    options = record["options"] | {"texts": ["books"], "validation": [], "init": start}
    seconds = [point["seconds"] for point in points if "seconds" in point]
    return {
        "options": options,
        "versions": record["versions"],
        "step": record["step"],
        "tokens": record["tokens"],
        "minutes": round(seconds[-1] / 60, 1),
        "note": record.get("note", ""),
        "points": points,
    }


def write_card() -> None:
    """Card and notice, from results.json alone."""
    from card import notice, storybook_card

    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    (DATA / "README.md").write_text(storybook_card(results), encoding="utf-8")
    (DATA / "NOTICE").write_text(notice(), encoding="utf-8")


def short(run: Path) -> None:
    """The one-minute run. Exits with code 1 unless the held-out loss falls: far below a uniform guess, which is where
    random weights begin, and below what it was after the first steps."""
    from recipe import short as options

    from maskropolis.training.history import read
    from maskropolis.training.masked.mlm import train_mlm

    result = train_mlm(options(EXCERPT), run, overwrite=True, command=("build.py", "--short"))
    if result is None:
        return
    losses = [point["validation_loss"] for point in read(run / "metrics.jsonl") if "validation_loss" in point]
    uniform = math.log(1000)
    print(f"held-out loss {losses[0]:.3f} -> {result.masked.loss:.3f}; a uniform guess has {uniform:.3f}")
    if not result.masked.loss < min(losses[0], uniform - 0.5):
        raise SystemExit("the short run did not lower the loss")


if __name__ == "__main__":
    from maskropolis.errors import MaskropolisError

    try:
        main()
    except MaskropolisError as error:
        raise SystemExit(f"error: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("interrupted; the same command with --resume goes on") from None
