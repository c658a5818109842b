"""Train a masked language model from text to a saved model: the one public verb of this room."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelerate import PartialState
from safetensors import SafetensorError

from maskropolis.models.denoising.noise_conditioning import MODULE
from maskropolis.models.huggingface.quiet import quiet
from maskropolis.records.files import write_file
from maskropolis.training import checkpoint
from maskropolis.training.checkpoint import disk_error
from maskropolis.training.data.batches import Batch, Batches
from maskropolis.training.data.corpus import Corpus, opener, separator
from maskropolis.training.display import display
from maskropolis.training.history import History, write_plot
from maskropolis.training.loop import Interrupted, Progress, Trainer
from maskropolis.training.masked import card
from maskropolis.training.masked.measuring import Measurement, measure, measure_single
from maskropolis.training.masked.options import GAUSSIAN, Options
from maskropolis.training.masked.preparation import DATA, Prepared, prepare
from maskropolis.training.objectives import Vocabulary
from maskropolis.training.running import Run, loop_settings, mark, running, versions


@dataclass(frozen=True)
class Result:
    """`masked`: loss at the rate of the validation objective; `single`: with one mask in a row; both held-out."""

    folder: Path
    progress: Progress
    masked: Measurement
    single: Measurement
    signature: str


def train_mlm(
    options: Options, folder: Path, *, resume: bool = False, overwrite: bool = False, command: tuple[str, ...] = ()
) -> Result | None:
    """Train as `options` say and save the model in `folder`.

    Killed at any moment, a run started again with the same options and `resume` ends with the weights that it would
    have had. Several processes (`accelerate launch`) share the work; all but the first return None. Raises
    `MaskropolisError`, and `Interrupted` after SIGINT or SIGTERM, its state saved.
    """
    with running(options, folder, resume, overwrite, command) as run:
        with PartialState().main_process_first():
            prepared = prepare(options, folder)
        return _train(options, prepared, run)


def _train(options: Options, prepared: Prepared, run: Run) -> Result | None:
    batches = _batches(options, prepared.training, prepared.tokenizer, options.alone)
    held_out = _batches(options, prepared.validation, prepared.tokenizer).in_order(options.validation_rows)
    words = Vocabulary.of(prepared.tokenizer, prepared.model.config.vocab_size)
    test = partial(measure, batch=held_out, objective=options.validation_objective(), vocabulary=words)
    trainer = Trainer(
        prepared.model,
        batches,
        options.training_objective(),
        words,
        loop_settings(options, batches.rows_per_pass / batches.rows),
        run.folder,
        evaluate=lambda predictor, autocast: test(predictor, autocast=autocast).loss,
    )
    progress, history = run.follow(trainer, display)
    return _finish(options, prepared, trainer, progress, held_out, words, history, run) if run.main else None


def _batches(options: Options, corpus: Corpus, tokenizer: Any, alone: float = 0.0) -> Batches:
    return Batches(corpus, options.length, options.rows, opener(tokenizer), separator(tokenizer), options.seed, alone)


def _finish(
    options: Options,
    prepared: Prepared,
    trainer: Trainer,
    progress: Progress,
    held_out: Batch,
    words: Vocabulary,
    history: History,
    run: Run,
) -> Result:
    """Takes the best weights, measures them in full precision, saves model, card and plot, removes the state."""
    folder = run.folder
    if trainer.best.is_file():
        checkpoint.load(trainer.best, trainer.model)
    trainer.model.eval()
    masked = measure(trainer.predictor, held_out, options.validation_objective(), words)
    single = measure_single(trainer.predictor, held_out, words)
    result = Result(folder, progress, masked, single, signature(options, prepared, masked))
    _export(trainer.model, prepared.tokenizer, folder)
    write_plot(folder, history.points, folder.name)
    text = card.write_card(_facts(options, prepared, result, run.command))
    try:
        write_file(folder / "README.md", text.encode())
    except OSError as error:
        raise disk_error(folder / "README.md", error) from None
    mark(folder, "finished", step=progress.step, tokens=progress.tokens, metrics=metrics(options, result))
    for state in (trainer.checkpoint, trainer.best):
        state.unlink(missing_ok=True)
    shutil.rmtree(folder / DATA, ignore_errors=True)
    return result


def _export(model: Any, tokenizer: Any, folder: Path) -> None:
    conditioning = model._modules.pop(MODULE, None)  # in a file of its own: the model stays what transformers knows
    try:
        with quiet():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            if conditioning is not None:
                conditioning.save(folder)
    except (OSError, SafetensorError) as error:
        raise disk_error(folder, error) from None


def metrics(options: Options, result: Result) -> dict[str, float]:
    """The figures of the card."""
    named = {"uniform": "masked tokens", "mdlm": "the diffusion bound", "d3pm": "the diffusion bound"}
    named |= {GAUSSIAN: "tokens under Gaussian noise"}
    objective = named.get(options.objective, f"tokens chosen at {options.mask_rate:.0%}")
    return {
        f"loss of {objective}, nats": result.masked.loss,
        f"perplexity of {objective}": result.masked.perplexity,
        "perplexity of one masked token in a row": result.single.perplexity,
        "standard error of the loss, nats": result.masked.error,
        "tokens predicted": result.masked.positions,
    }


def signature(options: Options, prepared: Prepared, masked: Measurement) -> str:
    """Says how the held-out loss was computed, so that two people's numbers can be compared."""
    parts = {
        "objective": repr(options.validation_objective()).replace(" ", ""),
        "length": options.length,
        "rows": options.validation_rows,
        "vocabulary": len(prepared.tokenizer),
        "data": prepared.fingerprint[:12],
        "seed": 0,
        "version": version("maskropolis"),
    }
    return "maskropolis|" + "|".join(f"{key}:{value}" for key, value in parts.items())


def _facts(options: Options, prepared: Prepared, result: Result, command: tuple[str, ...]) -> card.Facts:
    data = (
        f"{prepared.training.paragraphs:,} paragraphs, {len(prepared.training):,} tokens for training; "
        f"{prepared.validation.paragraphs:,} paragraphs, {len(prepared.validation):,} tokens for validation "
        f"({prepared.description}). {result.progress.tokens:,} tokens were seen in {result.progress.step:,} steps."
    )
    return card.Facts(
        name=result.folder.name,
        base=f"`{Path(options.init).name}`",
        license=options.license,
        data=data,
        note=options.data_note,
        command=command,
        seed=options.seed,
        signature=result.signature,
        metrics=metrics(options, result),
        versions=versions(),
    )


__all__ = ["Interrupted", "Options", "Result", "train_mlm"]
