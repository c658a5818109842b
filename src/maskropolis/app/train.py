"""`maskropolis train`: make masked language models out of text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from maskropolis.app.commands import Commands

train = Commands(help="Train or fine-tune masked language models.", no_args_is_help=True, rich_markup_mode=None)


def register(application: typer.Typer) -> None:
    application.add_typer(train, name="train")


@train.callback()
def _group() -> None:
    """Train or fine-tune masked language models."""


@train.command("mlm")
def mlm(
    texts: Annotated[list[Path], typer.Argument(help="Text, one paragraph a line; .jsonl, .parquet; folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the trained model.")],
    init: Annotated[
        str,
        typer.Option(
            metavar="NAME|DIR|scratch:SIZE", help="A saved model or encoder, storybook, or scratch:tiny|small|base."
        ),
    ],
    column: Annotated[str, typer.Option(help="Field or column of JSONL and Parquet that holds the text.")] = "text",
    validation: Annotated[list[Path] | None, typer.Option(help="Held-out text; else part of TEXTS.")] = None,
    hold_out: Annotated[float, typer.Option(help="Share of the text held out, if no --validation is given.")] = 0.05,
    validation_rows: Annotated[int, typer.Option(help="Rows of held-out text that are measured.")] = 512,
    shape: Annotated[str, typer.Option(help="Of a new model: bert or modernbert.")] = "bert",
    vocabulary: Annotated[str, typer.Option(help="Of a new model: wordpiece or bpe.")] = "wordpiece",
    vocabulary_size: Annotated[int, typer.Option(help="Pieces of a learnt vocabulary.")] = 8000,
    cased: Annotated[bool, typer.Option("--cased", help="A learnt vocabulary keeps capital letters.")] = False,
    prune: Annotated[int | None, typer.Option(help="Cut a saved model's WordPiece vocabulary to this many.")] = None,
    plain_marks: Annotated[bool, typer.Option("--plain-marks", help="Read curly quotes as straight ones.")] = False,
    length: Annotated[int, typer.Option(help="Tokens in a row, special tokens included.")] = 128,
    rows: Annotated[int, typer.Option(help="Rows in a batch.")] = 32,
    alone: Annotated[float, typer.Option(help="Share of batches made of single sentences instead of full rows.")] = 0.0,
    objective: Annotated[
        str, typer.Option(help="bert, uniform (a mask rate per row), mixture, mdlm, d3pm or gaussian-dae.")
    ] = "bert",
    mask_rate: Annotated[float, typer.Option(help="bert: share of positions chosen.")] = 0.15,
    masked: Annotated[float, typer.Option(help="bert: share of the chosen that are masked.")] = 0.8,
    replaced: Annotated[float, typer.Option(help="bert: share of the chosen that are replaced.")] = 0.1,
    rate_range: Annotated[
        tuple[float, float], typer.Option(help="uniform: from and to which rate; d3pm: to which.")
    ] = (0.0, 1.0),
    choose: Annotated[str, typer.Option(help="What is chosen as one: token, word or span.")] = "token",
    uniform_share: Annotated[float, typer.Option(help="mixture: share of batches with the uniform rate.")] = 0.5,
    noise: Annotated[
        str, typer.Option(help="mdlm, d3pm: log-linear, linear, cosine, polynomial:power=P or d3pm.")
    ] = "log-linear",
    time_steps: Annotated[int, typer.Option(help="d3pm: steps T of the bound.")] = 1000,
    sigma_range: Annotated[tuple[float, float], typer.Option(help="gaussian-dae: from and to which noise level σ.")] = (
        0.1,
        4.0,
    ),
    epochs: Annotated[float, typer.Option(help="Passes over the text, unless --steps or --minutes is given.")] = 1.0,
    steps: Annotated[int | None, typer.Option(help="Updates to make.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Training time; the rate falls to 0 by then.")] = None,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 5e-4,
    warmup: Annotated[int, typer.Option(help="Steps until the highest rate; then it falls linearly.")] = 100,
    weight_decay: Annotated[float, typer.Option(help="Of AdamW, on matrices only.")] = 0.01,
    clip: Annotated[float, typer.Option(help="Largest norm of the gradient.")] = 1.0,
    dropout: Annotated[float, typer.Option(help="Everywhere in the model.")] = 0.0,
    precision: Annotated[str, typer.Option(help="bf16, fp32, or auto: bf16 where the processor has it.")] = "auto",
    evaluate_every: Annotated[int, typer.Option(help="Steps between evaluations on held-out text.")] = 500,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 500,
    patience: Annotated[int | None, typer.Option(help="Stop after so many evaluations without progress.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Processor threads.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with --init; read it first.")
    ] = False,
    license: Annotated[str, typer.Option(help="Licence of the model, for its card.")] = "unknown",
    data_note: Annotated[str, typer.Option(help="Source and licence of the text, for the card.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --output.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the training run in --output.")] = False,
) -> None:
    """Train a masked language model on text and save it, with its tokenizer and a model card.

    \b
    maskropolis train mlm books/ -o my-model --init bert-base-uncased --minutes 60
    maskropolis train mlm reactions.txt -o my-model --init scratch:tiny --vocabulary-size 500 --cased --epochs 3
    maskropolis train mlm books/ -o my-model --init bert-base-uncased --minutes 60 --resume
    """
    given: dict[str, Any] = dict(locals())
    for name in ("output", "resume", "overwrite", "threads", "rate_range", "sigma_range"):
        del given[name]
    given |= {"texts": tuple(map(str, texts)), "validation": tuple(map(str, validation or ()))}
    given |= {"rate_low": rate_range[0], "rate_high": rate_range[1]}
    given |= {"sigma_low": sigma_range[0], "sigma_high": sigma_range[1]}
    _run(given, output, resume, overwrite, threads)


def _run(given: dict[str, Any], output: Path, resume: bool, overwrite: bool, threads: int | None) -> None:
    from maskropolis.errors import InputError
    from maskropolis.training.masked.options import Options

    options = Options(**given)  # checked before the slow imports
    if threads is not None and threads < 1:
        raise InputError(f"the number of threads is {threads}; expected at least 1")

    import torch

    from maskropolis.training.masked.mlm import Interrupted, train_mlm

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        command = ("maskropolis", *sys.argv[1:])
        result = train_mlm(options, output, resume=resume, overwrite=overwrite, command=command)
    except Interrupted:
        print(f"stopped; the state is saved in '{output}': go on with --resume", file=sys.stderr)
        raise
    if result is not None:
        masked, single = result.masked, result.single
        print(f"saved {output}: {result.progress.step} steps, {result.progress.tokens:,} tokens")
        print(f"held out: {masked.loss:.4f} ± {masked.error:.4f} nats a token, perplexity {masked.perplexity:.2f}")
        print(f"one mask in a row: perplexity {single.perplexity:.2f}")
        print(result.signature)
