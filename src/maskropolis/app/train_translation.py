"""`maskropolis train cmlm` and `maskropolis train seq2seq`: translation models out of line-aligned text."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from maskropolis.app.train import train

_Source = Annotated[str, typer.Option("--source", metavar="FILE", help="Sentences of the source language, one a line.")]
_Target = Annotated[str, typer.Option("--target", metavar="FILE", help="Their translations, line by line.")]
_Out = Annotated[Path, typer.Option("--out", "--output", "-o", metavar="DIR", help="Folder for the trained model.")]
_Distill = Annotated[
    str | None, typer.Option(metavar="FILE", help="Another model's translations of --source, trained on as target.")
]
_ValidSource = Annotated[str | None, typer.Option(metavar="FILE", help="Held-out sources; else part of --source.")]
_ValidTarget = Annotated[str | None, typer.Option(metavar="FILE", help="Their translations.")]
_HoldOut = Annotated[int, typer.Option(help="Pairs held out, if no held-out files are given.")]
_Sentences = Annotated[int, typer.Option(help="Held-out pairs that BLEU is measured on.")]
_Iterations = Annotated[int, typer.Option(help="Of Mask-Predict, when BLEU is measured.")]
_Vocabulary = Annotated[int, typer.Option(help="Byte-pair pieces, learnt on both languages together.")]
_Lowercase = Annotated[bool, typer.Option("--lowercase", help="The vocabulary knows no capital letters.")]
_Width = Annotated[int, typer.Option(help="Of the hidden states.")]
_Heads = Annotated[int, typer.Option(help="Attention heads.")]
_FeedForward = Annotated[int, typer.Option(help="Inner width of the feed-forward parts.")]
_EncoderLayers = Annotated[int, typer.Option(help="Layers of the encoder.")]
_DecoderLayers = Annotated[int, typer.Option(help="Layers of the decoder.")]
_Longest = Annotated[int, typer.Option(help="Most tokens of a sentence; longer pairs are left out.")]
_Dropout = Annotated[float, typer.Option(help="Everywhere in the model.")]
_Smoothing = Annotated[float, typer.Option(help="Share of the probability spread over all tokens.")]
_Tokens = Annotated[int, typer.Option(help="Target tokens in a batch.")]
_Copies = Annotated[int, typer.Option(help="Maskings of each target in a batch; they share its encoded source.")]
_Epochs = Annotated[float, typer.Option(help="Passes over the text, unless --steps or --minutes is given.")]
_Steps = Annotated[int | None, typer.Option(help="Updates to make.")]
_Minutes = Annotated[float | None, typer.Option(help="Training time; the rate falls to 0 by then.")]
_Rate = Annotated[float, typer.Option(help="Highest learning rate.")]
_Warmup = Annotated[int, typer.Option(help="Steps until the highest rate; then it falls linearly.")]
_Decay = Annotated[float, typer.Option(help="Of AdamW, on matrices only.")]
_Clip = Annotated[float, typer.Option(help="Largest norm of the gradient.")]
_Precision = Annotated[str, typer.Option(help="bf16, fp32, or auto: bf16 where the processor has it.")]
_Evaluate = Annotated[int, typer.Option(help="Steps between measurements of BLEU.")]
_Checkpoint = Annotated[int, typer.Option(help="Steps between checkpoints.")]
_Patience = Annotated[int | None, typer.Option(help="Stop after so many measurements without progress.")]
_Average = Annotated[int, typer.Option(help="Average so many of the last measured states.")]
_Compile = Annotated[bool, typer.Option("--compile", help="Compile the network with torch.compile.")]
_Seed = Annotated[int, typer.Option(help="Of everything random.")]
_Threads = Annotated[int | None, typer.Option(help="Processor threads.")]
_License = Annotated[str, typer.Option(help="Licence of the model, for its card.")]
_Note = Annotated[str, typer.Option(help="Source and licence of the text, for the card.")]
_Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the training run in --out.")]


@train.command("cmlm")
def cmlm(
    source: _Source,
    target: _Target,
    out: _Out,
    distill: _Distill = None,
    valid_source: _ValidSource = None,
    valid_target: _ValidTarget = None,
    hold_out: _HoldOut = 500,
    validation_sentences: _Sentences = 500,
    validation_iterations: _Iterations = 10,
    vocabulary_size: _Vocabulary = 8000,
    lowercase: _Lowercase = False,
    width: _Width = 256,
    heads: _Heads = 4,
    feed_forward: _FeedForward = 1024,
    encoder_layers: _EncoderLayers = 3,
    decoder_layers: _DecoderLayers = 3,
    longest: _Longest = 128,
    dropout: _Dropout = 0.1,
    label_smoothing: _Smoothing = 0.1,
    tokens: _Tokens = 2600,
    copies: _Copies = 1,
    epochs: _Epochs = 20.0,
    steps: _Steps = None,
    minutes: _Minutes = None,
    learning_rate: _Rate = 1e-3,
    warmup: _Warmup = 400,
    weight_decay: _Decay = 0.01,
    clip: _Clip = 1.0,
    precision: _Precision = "auto",
    evaluate_every: _Evaluate = 500,
    checkpoint_every: _Checkpoint = 500,
    patience: _Patience = None,
    average: _Average = 5,
    compile: _Compile = False,
    seed: _Seed = 0,
    threads: _Threads = None,
    license: _License = "unknown",
    data_note: _Note = "",
    resume: _Resume = False,
    overwrite: _Overwrite = False,
) -> None:
    """Train a conditional masked language model: it translates by Mask-Predict or by Metropolis–Hastings.

    \b
    maskropolis train cmlm --source train.de --target train.en --out de-en --minutes 100
    """
    _run("cmlm", dict(locals()))


_CMLM_ONLY = ("validation_iterations", "copies", "compile")


def seq2seq(**given: Any) -> None:
    """Train the autoregressive baseline of the same size: it translates from left to right, by beam search.

    \b
    maskropolis train seq2seq --source train.de --target train.en --out de-en-baseline --minutes 100
    """
    _run("seq2seq", given)


def _signature_without(function: Callable[..., None], names: Sequence[str]) -> inspect.Signature:
    """That of `function` but for some of its options; typer reads it."""
    found = inspect.signature(function, eval_str=True)
    return found.replace(parameters=[one for name, one in found.parameters.items() if name not in names])


seq2seq.__dict__["__signature__"] = _signature_without(cmlm, _CMLM_ONLY)
train.command("seq2seq")(seq2seq)


def _run(kind: str, given: dict[str, Any]) -> None:
    from maskropolis.errors import InputError
    from maskropolis.training.parallel.options import ParallelOptions

    out, resume, overwrite, threads = (given.pop(name) for name in ("out", "resume", "overwrite", "threads"))
    options = ParallelOptions(kind=kind, **given)  # checked before the slow imports
    if threads is not None and threads < 1:
        raise InputError(f"the number of threads is {threads}; expected at least 1")

    import torch

    from maskropolis.training.parallel.run import Interrupted, train_parallel

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        command = ("maskropolis", *sys.argv[1:])
        result = train_parallel(options, out, resume=resume, overwrite=overwrite, command=command)
    except Interrupted:
        print(f"stopped; the state is saved in '{out}': go on with --resume", file=sys.stderr)
        raise
    if result is not None:
        found = result.quality
        print(f"saved {out}: {result.progress.step} steps, {result.progress.tokens:,} target tokens")
        print(f"held out: BLEU {found.bleu:.2f}, chrF {found.chrf:.2f}; mean of {result.averaged} states")
        print(result.signature)
