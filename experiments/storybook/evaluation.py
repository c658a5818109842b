"""What storybook can do, on the books it has not seen and on agreement pairs, with all it takes to repeat it."""

from __future__ import annotations

import math
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from agreement import pairs
from recipe import LENGTH, held_out
from transformers import AutoModelForMaskedLM, AutoTokenizer

from maskropolis import load, score
from maskropolis.training.data import corpus
from maskropolis.training.data.batches import Batch, Batches
from maskropolis.training.data.corpus import opener, separator
from maskropolis.training.masked.measuring import Measurement, measure, measure_single
from maskropolis.training.masked.prediction import Predictor
from maskropolis.training.objectives import Bert, Objective, UniformRate, Vocabulary
from maskropolis.training.running import versions

ROWS = 2048  # packed rows of held-out text, evenly spread over the books
SINGLE_ROWS, PER_ROW = 512, 3
CURVE = (0.25, 0.5, 0.75, 1.0)  # pure masking at these rates


def held_out_rows(books: Path, tokenizer: Any, rows: int = ROWS) -> tuple[Batch, list[str]]:
    """Packed rows of the books that the recipe holds out, and their names."""
    split = held_out(books)
    with tempfile.TemporaryDirectory() as scratch:
        made = corpus.build(split.validation(), tokenizer, Path(scratch) / "held-out", sentences=False)
        batches = Batches(made, LENGTH, rows, opener(tokenizer), separator(tokenizer))
        return batches.in_order(rows), [file.stem for file in split.validation_files]


def evaluate(folder: Path, books: Path, rows: int = ROWS) -> dict[str, Any]:
    """All figures of the card, in float32, from the files that ship."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    words = Vocabulary.of(tokenizer, model.config.vocab_size)
    batch, names = held_out_rows(books, tokenizer, rows)
    predictor = Predictor(model)

    def at(objective: Objective, some: Batch = batch) -> dict[str, float]:
        return _figures(measure(predictor, some, objective, words))

    fewer = Batch(batch.tokens[:: max(1, rows // SINGLE_ROWS)], batch.starts[:: max(1, rows // SINGLE_ROWS)])
    return {
        "signature": signature(folder, len(batch.tokens)),
        "held_out": names,
        "bert_15": at(Bert(0.15)),
        "masked_15": at(Bert(0.15, masked=1.0, replaced=0.0), fewer),
        "single": _figures(measure_single(predictor, fewer, words, per_row=PER_ROW)),
        "pure_masking": {f"{rate:.0%}": at(UniformRate(rate, rate), fewer) for rate in CURVE},
        "agreement": agreement(folder),
        "versions": versions(),
        "machine": machine(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
    }


def agreement(folder: Path) -> dict[str, float]:
    """The share of pairs in which the PLL of the grammatical sentence is higher, by kind and over all."""
    made = pairs()
    model = load(str(folder))
    scores = [one.pll for one in score([s for pair in made for s in (pair.good, pair.bad)], model)]
    right = [good > bad for good, bad in zip(scores[::2], scores[1::2], strict=True)]
    kinds = dict.fromkeys(pair.kind for pair in made)
    shares = {kind: _share([r for r, pair in zip(right, made, strict=True) if pair.kind == kind]) for kind in kinds}
    return {"all": _share(right), "pairs": len(made)} | shares


def signature(folder: Path, rows: int) -> str:
    """How the figures were computed; the model is named by the hash of its weights."""
    import hashlib

    with (folder / "model.safetensors").open("rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    parts = {
        "model": f"storybook@{weights}",
        "data": "books, 1 in 20 held out, seed 0",
        "length": LENGTH,
        "rows": rows,
        "masks": "seed 0",
        "dtype": "float32",
        "version": versions()["maskropolis"],
    }
    return "maskropolis|" + "|".join(f"{key}:{value}" for key, value in parts.items())


def machine() -> dict[str, Any]:
    """The kind of machine, in the words of the system."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []:
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return {"cpu": cpu, "cores": os.cpu_count()}


def _figures(found: Measurement) -> dict[str, float]:
    return {
        "loss": round(found.loss, 5),
        "standard_error": round(found.error, 5),
        "perplexity": round(math.exp(found.loss), 3),
        "positions": found.positions,
    }


def _share(right: Sequence[bool]) -> float:
    return round(sum(right) / len(right), 4)
