"""Which score tells a sentence from its spoilt twin? Minimal pairs by rule from held-out books, and from templates.

    python experiments/acceptability/run.py --books books.tar.xz      # makes the pairs, scores them, writes the table
    python experiments/acceptability/run.py                           # scores the pairs that are here

Writes pairs.jsonl, results.json and results.md beside this file. A minute on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import common  # noqa: E402
from accuracy import accuracy, disagreements, right  # noqa: E402
from minimal_pairs import MinimalPair, from_books  # noqa: E402

from maskropolis import load, score  # noqa: E402
from maskropolis.errors import InputError, MaskropolisError  # noqa: E402
from maskropolis.scoring import METRICS  # noqa: E402

NAMES = {
    "pll": "PLL",
    "pll-word-l2r": "within-word PLL",
    "raw": "raw energy",
    "norm": "norm energy (minus PLL)",
    "pppl": "pseudo-perplexity (PLL per token)",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--books", type=Path, help="archive or folder of the books, or one text file: new pairs")
    parser.add_argument("--work", type=Path, default=Path("runs/acceptability"), help="where an archive is unpacked")
    parser.add_argument("--model", help="another model than the bundled one")
    parser.add_argument("--per-kind", type=int, default=120, help="pairs by each rule, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE, help="where pairs and results are written")
    chosen = parser.parse_args(arguments)
    try:
        run(chosen)
    except MaskropolisError as error:
        parser.exit(2, f"{error}\n")


def run(chosen: argparse.Namespace) -> None:
    chosen.out.mkdir(parents=True, exist_ok=True)
    file = chosen.out / "pairs.jsonl"
    if chosen.books is not None:
        write_pairs(file, make_pairs(chosen.books, chosen.work, chosen.per_kind, chosen.seed))
    pairs = read_pairs(file)
    results = measure(pairs, load(chosen.model), chosen.seed)
    common.write_json(chosen.out / "results.json", results)
    (chosen.out / "results.md").write_text(table(results), encoding="utf-8")
    print(table(results))


def make_pairs(books: Path, work: Path, per_kind: int, seed: int) -> list[MinimalPair]:
    """Pairs from the held-out books, then those from templates."""
    from agreement import pairs as from_templates

    made = from_books(common.sentences(common.books_of(books, work)), per_kind, seed)
    written = from_templates(min(per_kind, 80), seed)
    return [*made, *(MinimalPair(pair.kind, "templates", pair.good, pair.bad) for pair in written)]


def write_pairs(file: Path, pairs: Sequence[MinimalPair]) -> None:
    """One pair a line."""
    file.write_text("".join(json.dumps(p._asdict(), ensure_ascii=False) + "\n" for p in pairs), encoding="utf-8")


def read_pairs(file: Path) -> list[MinimalPair]:
    """Raises `InputError` if there are none."""
    if not file.is_file():
        raise InputError(f"there is no '{file}' yet; make the pairs with --books books.tar.xz")
    try:
        return [MinimalPair(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    except (json.JSONDecodeError, TypeError) as error:
        raise InputError(f"'{file}' is not a file of pairs ({error}); make it anew with --books books.tar.xz") from None


def measure(pairs: Sequence[MinimalPair], model: Any, seed: int) -> dict[str, Any]:
    """The content of results.json."""
    began = time.perf_counter()
    scores = score([text for pair in pairs for text in (pair.good, pair.bad)], model, metric="all")
    seconds = time.perf_counter() - began
    verdicts = {
        metric: right(metric, *([one.value(metric) for one in scores[first::2]] for first in (0, 1)))
        for metric in METRICS
    }
    kinds = dict.fromkeys(pair.kind for pair in pairs)
    digest = hashlib.sha256("".join(f"{p.good}\n{p.bad}\n" for p in pairs).encode()).hexdigest()[:12]
    return {
        "signature": common.signature(
            "acceptability", model=common.named(model), pairs=f"{len(pairs)}@{digest}", dtype="float32", seed=seed,
            interval="Wilson 95%",
        ),
        "seed": seed,
        "pairs": len(pairs),
        "from_books": sum(pair.source != "templates" for pair in pairs),
        "sources": list(dict.fromkeys(pair.source for pair in pairs)),
        "all": {metric: accuracy(found) for metric, found in verdicts.items()},
        "kinds": {kind: {m: accuracy(_of(kind, pairs, found)) for m, found in verdicts.items()} for kind in kinds},
        "disagreements": disagreements({m: v for m, v in verdicts.items() if m != "norm"}),
        "seconds": round(seconds, 1),
        **common.circumstances(),
    }  # fmt: skip


def _of(kind: str, pairs: Sequence[MinimalPair], verdicts: Sequence[bool]) -> list[bool]:
    return [verdict for verdict, pair in zip(verdicts, pairs, strict=True) if pair.kind == kind]


def table(results: dict[str, Any]) -> str:
    """results.md, from results.json alone."""
    metrics = list(NAMES)
    lines = [
        "# Acceptability",
        "",
        f"{results['pairs']} minimal pairs, {results['from_books']} of them by rule from books that the model has not",
        "seen, the others from templates. Share of pairs in which the good sentence scores better, with the 95% Wilson",
        "interval. Minus the PLL is the norm energy, so their columns are equal.",
        "",
        "| kind | pairs | " + " | ".join(NAMES[metric] for metric in metrics) + " |",
        "| --- | --- " + "| --- " * len(metrics) + "|",
        _row("all", results["all"], metrics),
        *(_row(kind, found, metrics) for kind, found in results["kinds"].items()),
        "",
        "Pairs that one score alone gets right, and the p-value of McNemar's exact test:",
        "",
        "| first | second | first alone | second alone | p |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {NAMES[d['first']]} | {NAMES[d['second']]} | {d['only_first']} | {d['only_second']} | {d['p']:.3g} |"
            for d in results["disagreements"]
        ),
        "",
        f"Signature: `{results['signature']}`",
    ]
    return "\n".join(lines) + "\n"


def _row(kind: str, found: dict[str, Any], metrics: Sequence[str]) -> str:
    cells = [f"{found[m]['accuracy']:.1%} ({found[m]['low']:.1%}–{found[m]['high']:.1%})" for m in metrics]
    return f"| {kind} | {found[metrics[0]]['pairs']} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
