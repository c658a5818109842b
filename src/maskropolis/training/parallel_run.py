"""Train a translation model from two line-aligned files to a saved model: the one public verb for both kinds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import PartialState
from transformers import AutoTokenizer

from maskropolis import __version__
from maskropolis.chains.files import write_file
from maskropolis.decoders.quality import Quality, quality
from maskropolis.errors import MaskropolisError, RunError
from maskropolis.models.quiet import quiet
from maskropolis.training import checkpoint, output
from maskropolis.training.checkpoint import disk_error
from maskropolis.training.cmlm import CmlmTask
from maskropolis.training.history import History
from maskropolis.training.loop import Interrupted, Progress, Settings, Silent
from maskropolis.training.memory import keep_freed_blocks
from maskropolis.training.mlm import versions
from maskropolis.training.optimisation import Budget
from maskropolis.training.parallel import Pairs, distilled, hold_out, read_pairs
from maskropolis.training.parallel_batches import ParallelBatches, encode_pairs
from maskropolis.training.parallel_card import ParallelFacts, write_parallel_card
from maskropolis.training.parallel_display import parallel_display
from maskropolis.training.parallel_options import ParallelOptions
from maskropolis.training.parallel_trainer import AVERAGED, Losses, ParallelTrainer
from maskropolis.training.parallel_vocabulary import learn_joint
from maskropolis.training.seq2seq import Seq2SeqTask

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
    have had. All processes but the first return None. Raises `MaskropolisError`, and `Interrupted` after SIGINT or
    SIGTERM, its state saved.
    """
    keep_freed_blocks()
    team = PartialState(cpu=not torch.cuda.is_available())
    with ExitStack() as stack:
        if team.is_main_process:
            stack.enter_context(output.claimed(folder, resume, overwrite))
            _begin(options, folder, resume, command)
        try:
            with team.main_process_first():
                data = _prepare(options, folder)
            return _train(options, data, folder, resume, command, team.is_main_process, stack)
        except (MaskropolisError, KeyboardInterrupt) as error:
            if team.is_main_process:
                _mark(folder, "interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
            raise


def _prepare(options: ParallelOptions, folder: Path) -> _Data:
    """Pairs and tokenizer; the tokenizer is learnt once and kept in `folder`."""
    training, validation = _pairs(options)
    record = output.read_record(folder)
    mark = f"{training.fingerprint()}-{validation.fingerprint()}"
    if record.get("data", mark) != mark:
        raise RunError(f"the text has changed since the run in '{folder}' began; it cannot go on")
    if (folder / "tokenizer.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(folder)
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


def _train(
    options: ParallelOptions,
    data: _Data,
    folder: Path,
    resume: bool,
    command: tuple[str, ...],
    main: bool,
    stack: ExitStack,
) -> ParallelResult | None:
    task = make_task(options)
    network = task.network(data.tokenizer)
    encoded, left_out = encode_pairs(data.training, data.tokenizer, task.longest(network))
    tokens = max(options.tokens // options.copies, int(encoded.target_lengths.max()))
    batches = ParallelBatches(encoded, tokens, data.tokenizer.pad_token_id, options.seed)

    def validate() -> float:
        return _measure(task, network, data).bleu

    trainer = ParallelTrainer(
        network, batches, task, settings(options, batches), folder, validate, None, options.average, options.compile
    )
    history = History(folder)
    if resume and trainer.checkpoint.is_file():
        trainer.resume()
    if main:
        history.truncate(trainer.progress.step)
    trainer.listener = stack.enter_context(parallel_display(history)) if main else Silent()
    progress = trainer.run()
    if not main:
        return None
    note = f" {left_out} pairs were longer than {options.longest} tokens." if left_out else ""
    described = replace(data, description=data.description + note)
    return _finish(options, task, described, trainer, progress, folder, command)


def _measure(task: Task, network: Any, data: _Data) -> Quality:
    was_training = network.training
    network.eval()
    found = task.translate(network, data.tokenizer, data.validation.sources)
    network.train(was_training)
    return quality(found, data.validation.targets)


def settings(options: ParallelOptions, batches: ParallelBatches) -> Settings:
    """The numbers of the loop; without --steps, as many steps as the epochs take."""
    steps = options.steps or max(1, round(options.epochs * batches.batches_per_pass))
    if options.steps is None and options.minutes is not None:
        steps = 1 << 40  # the clock alone decides
    return Settings(
        budget=Budget(steps, None if options.minutes is None else 60 * options.minutes),
        peak=options.learning_rate,
        warmup=options.warmup,
        weight_decay=options.weight_decay,
        clip=options.clip,
        seed=options.seed,
        precision=options.precision,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        patience=options.patience,
    )


def _finish(
    options: ParallelOptions,
    task: Task,
    data: _Data,
    trainer: ParallelTrainer,
    progress: Progress,
    folder: Path,
    command: tuple[str, ...],
) -> ParallelResult:
    """Saves the average of the last states or the best single one, whichever is better on the held-out pairs."""
    network: Any = trainer.model
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
    _export(network, data.tokenizer, folder, _facts(options, task, data, result, command))
    metrics = {"bleu": found.bleu, "chrf": found.chrf}
    _mark(folder, "finished", step=progress.step, tokens=progress.tokens, seconds=progress.seconds, metrics=metrics)
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


def _begin(options: ParallelOptions, folder: Path, resume: bool, command: tuple[str, ...]) -> None:
    """Writes the record of a new run; checks that a resumed one is the same."""
    if not resume:
        made = {"command": list(command), "options": options.as_json(), "versions": versions()}
        return output.write_record(folder, {"status": "running", **made})
    record = output.read_record(folder)
    if record.get("status") == "finished":
        raise RunError(f"the run in '{folder}' is finished; nothing to resume")
    fixed = options.fixed()
    before = {key: value for key, value in record["options"].items() if key in fixed}
    if other := output.differences(before, fixed):
        raise RunError(f"the run in '{folder}' was started with other options: {', '.join(other)}; use the same ones")
    return output.write_record(folder, {**record, "status": "running", "options": options.as_json()})


def _mark(folder: Path, status: str, **more: Any) -> None:
    output.write_record(folder, {**output.read_record(folder), "status": status, **more})
