"""Train a translation model from two line-aligned files to a saved model: the one public verb for both kinds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import PartialState

from maskropolis import __version__
from maskropolis.errors import RunError
from maskropolis.models.huggingface.pretrained import tokenizer_from
from maskropolis.models.huggingface.quiet import quiet
from maskropolis.records.files import write_file
from maskropolis.searching.quality import Quality, quality
from maskropolis.training import checkpoint, output
from maskropolis.training.checkpoint import disk_error
from maskropolis.training.loop import Interrupted, Progress
from maskropolis.training.parallel.batches import ParallelBatches, encode_pairs
from maskropolis.training.parallel.card import ParallelFacts, write_parallel_card
from maskropolis.training.parallel.cmlm import CmlmTask
from maskropolis.training.parallel.display import parallel_display
from maskropolis.training.parallel.options import ParallelOptions
from maskropolis.training.parallel.pairs import Pairs, distilled, hold_out, read_pairs
from maskropolis.training.parallel.seq2seq import Seq2SeqTask
from maskropolis.training.parallel.trainer import AVERAGED, Losses, ParallelTrainer
from maskropolis.training.parallel.vocabulary import learn_joint
from maskropolis.training.running import Run, loop_settings, mark, running, versions

__all__ = ["Interrupted", "ParallelOptions", "ParallelResult", "train_parallel"]


class Task(Losses, Protocol):
    """What is particular to one kind of translation model."""

    card_kind: str

    def network(self, tokenizer: Any) -> Any: ...

    def longest(self, network: Any) -> tuple[int, int]: ...

    def translate(self, network: Any, tokenizer: Any, texts: Sequence[str]) -> list[str]: ...

    def signature(self) -> str: ...


@dataclass(frozen=True)
class ParallelResult:
    """`quality`: of the saved weights on held-out pairs; `averaged`: how many states they are the mean of (1: none)."""

    folder: Path
    progress: Progress
    quality: Quality
    averaged: int
    signature: str


@dataclass(frozen=True)
class _Data:
    training: Pairs
    validation: Pairs
    tokenizer: Any
    description: str


def make_task(options: ParallelOptions) -> Task:
    """The task that the options name."""
    return CmlmTask(options) if options.kind == "cmlm" else Seq2SeqTask(options)


def train_parallel(
    options: ParallelOptions,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: tuple[str, ...] = (),
) -> ParallelResult | None:
    """Train as `options` say and save the model in `folder`.

    Killed at any moment, a run started again with the same options and `resume` ends with the weights that it would
    have had; with `minutes`, where the learning rate follows the clock, nearly. All processes but the first return
    None. Raises `MaskropolisError`, and `Interrupted` after SIGINT or SIGTERM, its state saved.
    """
    with running(options, folder, resume, overwrite, command) as run:
        with PartialState().main_process_first():
            data = _prepare(options, folder)
        return _train(options, data, run)


def _prepare(options: ParallelOptions, folder: Path) -> _Data:
    """Pairs and tokenizer; the tokenizer is learnt once and kept in `folder`."""
    training, validation = _pairs(options)
    record = output.read_record(folder)
    mark = f"{training.fingerprint()}-{validation.fingerprint()}"
    if record.get("data", mark) != mark:
        raise RunError(f"the text has changed since the run in '{folder}' began; it cannot go on")
    if (folder / "tokenizer.json").is_file():
        tokenizer = tokenizer_from(str(folder))
    else:
        both = (text for side in (training.sources, training.targets) for text in side)
        tokenizer = learn_joint(both, options.vocabulary_size, options.lowercase)
        tokenizer.model_max_length = options.longest
        tokenizer.save_pretrained(folder)
    if PartialState().is_main_process:
        output.write_record(folder, {**record, "data": mark})
    made = f" Targets are the translations in '{Path(options.distill).name}'." if options.distill else ""
    skipped = f" {training.skipped} lines with an empty side were passed over." if training.skipped else ""
    description = f"{len(training):,} pairs for training, {len(validation):,} for validation.{made}{skipped}"
    return _Data(training, validation, tokenizer, description)


def _pairs(options: ParallelOptions) -> tuple[Pairs, Pairs]:
    whole = read_pairs(options.source, options.target)
    if options.valid_source is not None and options.valid_target is not None:
        training, validation = whole, read_pairs(options.valid_source, options.valid_target)
    else:
        training, validation = hold_out(whole, options.hold_out, options.seed)
    if options.distill is not None:
        training = distilled(training, options.distill, options.source, len(whole) + whole.skipped)
    count = min(options.validation_sentences, len(validation))
    return training, validation.at(range(count))


def _train(options: ParallelOptions, data: _Data, run: Run) -> ParallelResult | None:
    task = make_task(options)
    network = task.network(data.tokenizer)
    encoded, left_out = encode_pairs(data.training, data.tokenizer, task.longest(network))
    tokens = max(options.tokens // options.copies, int(encoded.target_lengths.max()))
    batches = ParallelBatches(encoded, tokens, data.tokenizer.pad_token_id, options.seed)

    def validate() -> float:
        return _measure(task, network, data).bleu

    numbers = loop_settings(options, batches.batches_per_pass)
    trainer = ParallelTrainer(
        network, batches, task, numbers, run.folder, validate, None, options.average, options.compile
    )
    progress, _ = run.follow(trainer, parallel_display)
    if not run.main:
        return None
    note = f" {left_out} pairs were longer than {options.longest} tokens." if left_out else ""
    described = replace(data, description=data.description + note)
    return _finish(options, task, described, trainer, progress, run)


def _measure(task: Task, network: Any, data: _Data) -> Quality:
    was_training = network.training
    network.eval()
    found = task.translate(network, data.tokenizer, data.validation.sources)
    network.train(was_training)
    return quality(found, data.validation.targets)


def _finish(
    options: ParallelOptions,
    task: Task,
    data: _Data,
    trainer: ParallelTrainer,
    progress: Progress,
    run: Run,
) -> ParallelResult:
    """Saves the average of the last states or the best single one, whichever is better on the held-out pairs."""
    network: Any = trainer.model
    folder = run.folder
    averaged = trainer.average()
    measured = _measure(task, network, data) if averaged > 1 else None
    if trainer.best.is_file():
        mean = {name: tensor.clone() for name, tensor in checkpoint.weights(network).items()}
        checkpoint.load(trainer.best, network)
        single = _measure(task, network, data)
        if measured is not None and measured.bleu >= single.bleu:
            with torch.no_grad():
                for name, tensor in checkpoint.weights(network).items():
                    tensor.copy_(mean[name])
        else:
            measured, averaged = single, 1
    found = measured or _measure(task, network, data)
    signature = f"maskropolis|model:{folder.name}|{task.signature()}|version:{__version__}|{found.signature}"
    result = ParallelResult(folder, progress, found, max(1, averaged), signature)
    _export(network, data.tokenizer, folder, _facts(options, task, data, result, run.command))
    metrics = {"bleu": found.bleu, "chrf": found.chrf}
    mark(folder, "finished", step=progress.step, tokens=progress.tokens, seconds=progress.seconds, metrics=metrics)
    for state in (trainer.checkpoint, trainer.best):
        state.unlink(missing_ok=True)
    shutil.rmtree(folder / AVERAGED, ignore_errors=True)
    return result


def _export(network: Any, tokenizer: Any, folder: Path, facts: ParallelFacts) -> None:
    try:
        with quiet():
            network.eval().save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        write_file(folder / "README.md", write_parallel_card(facts).encode())
    except OSError as error:
        raise disk_error(folder, error) from None


def _facts(
    options: ParallelOptions, task: Task, data: _Data, result: ParallelResult, command: tuple[str, ...]
) -> ParallelFacts:
    parameters = sum(p.numel() for p in task.network(data.tokenizer).parameters())
    seen = f"{result.progress.tokens:,} target tokens in {result.progress.step:,} steps"
    minutes = f"{result.progress.seconds / 60:.1f} minutes"
    return ParallelFacts(
        name=result.folder.name,
        kind=task.card_kind,
        license=options.license,
        data=f"{data.description} {seen}, {minutes}; {parameters:,} parameters.",
        note=options.data_note,
        command=command,
        seed=options.seed,
        signature=result.signature,
        metrics={"BLEU": result.quality.bleu, "chrF": result.quality.chrf, "states averaged": result.averaged},
        versions=versions(),
    )
