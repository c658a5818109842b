"""Does the uniform mask rate harm the conditionals of single masks? Two short runs that differ in the objective alone.

    python experiments/storybook/ablation.py --books BOOKS_FOLDER --steps 150

Both start from the same weights, see the same rows in the same order and take the same number of steps; the result goes
into results.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--books", type=Path, required=True, help="the folder of books")
    parser.add_argument("--init", help="a saved model to start from; by default the encoder that storybook starts from")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--only", choices=("mixture", "bert"), help="one arm, its figures to standard output alone")
    parser.add_argument("--figures", type=Path, nargs=2, help="outputs of --only, mixture and bert, to be recorded")
    arguments = parser.parse_args()
    if arguments.figures:
        return record(
            {k: v for f in arguments.figures for k, v in json.loads(f.read_text()).items()}, describe(arguments)
        )
    arms = [arguments.only] if arguments.only else ["mixture", "bert"]
    found: dict[str, Any] = {arm: run(arguments, arm) for arm in arms}
    if arguments.only:
        return print(json.dumps(found))
    return record(found, describe(arguments))


def describe(arguments: argparse.Namespace) -> str:
    count = len(list(arguments.books.rglob("*.txt")))
    start = "storybook itself" if arguments.init else "the same encoder"
    return f"{arguments.steps} steps of 32 rows from {start} on {count} of the books, one in twenty of them held out"


def run(arguments: argparse.Namespace, objective: str) -> dict[str, Any]:
    """Trains one arm and measures it with single masks and with half of the tokens masked."""
    from evaluation import PER_ROW, SINGLE_ROWS, _figures, held_out_rows
    from recipe import storybook
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from maskropolis.training.masked.measuring import measure, measure_single
    from maskropolis.training.masked.mlm import train_mlm
    from maskropolis.training.masked.prediction import Predictor
    from maskropolis.training.objectives import Bert, UniformRate, Vocabulary

    options = replace(storybook(arguments.books, 1.0), objective=objective, minutes=None, steps=arguments.steps)
    options = replace(options, learning_rate=arguments.learning_rate, warmup=arguments.steps // 10)
    if arguments.init:
        options = replace(options, init=arguments.init, prune=None, plain_marks=False)
    with tempfile.TemporaryDirectory() as scratch:
        train_mlm(options, Path(scratch) / "model")
        tokenizer = AutoTokenizer.from_pretrained(Path(scratch) / "model")
        model = AutoModelForMaskedLM.from_pretrained(Path(scratch) / "model").eval()
    words = Vocabulary.of(tokenizer, model.config.vocab_size)
    batch, _ = held_out_rows(arguments.books, tokenizer, SINGLE_ROWS)
    predictor = Predictor(model)
    return {
        "single": _figures(measure_single(predictor, batch, words, per_row=PER_ROW)),
        "bert_15": _figures(measure(predictor, batch, Bert(), words)),
        "half": _figures(measure(predictor, batch, UniformRate(0.5, 0.5), words)),
    }


def record(found: dict[str, Any], description: str) -> None:
    """Adds the two arms to results.json."""
    path = HERE / "results.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    results["ablation"] = {"description": description} | found
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
