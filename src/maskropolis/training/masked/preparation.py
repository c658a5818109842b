"""From options to what a run works on: tokenizer, token ids on disk, model. Done once; a resumed run finds it there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from maskropolis.errors import InputError, RunError
from maskropolis.models.denoising.noise_conditioning import MODULE, NoiseConditioning, load_conditioning
from maskropolis.records.files import read_json, write_json
from maskropolis.training.data import corpus, holding_out, pruning, readers, vocabulary
from maskropolis.training.data.corpus import Corpus
from maskropolis.training.data.holding_out import Split
from maskropolis.training.masked import scratch, starting
from maskropolis.training.masked.denoising import log_prior
from maskropolis.training.masked.options import GAUSSIAN, Options
from maskropolis.training.objectives import Vocabulary

SCRATCH = "scratch:"
DATA = "data"
_POSITIONS = 512  # a new model can read at least this far


@dataclass(frozen=True)
class Prepared:
    """`description` says how the text was divided. `fingerprint` is the hash of text, tokenizer and options."""

    tokenizer: Any
    model: Any
    training: Corpus
    validation: Corpus
    description: str
    fingerprint: str


def prepare(options: Options, folder: Path) -> Prepared:
    """Tokenizer and data into `folder`/data, and the model the run starts from. Raises `MaskropolisError`s."""
    if options.init.startswith(SCRATCH):
        scratch.check(options.init.removeprefix(SCRATCH), options.shape)
    split = _split(options)
    tokenizer, kept = _tokenizer(options, split)
    files = dict.fromkeys([*split.training_files, *split.validation_files])
    mark = corpus.fingerprint(files, tokenizer, options.hold_out, options.seed, options.validation, options.alone > 0)
    training, validation = _corpora(options, split, tokenizer, folder / DATA, mark)
    model = _model(options, tokenizer)
    if kept is not None:
        starting.keep_tokens(model, kept)
        starting.start_output_bias(model, training.unigram_counts(len(tokenizer)))
    _check_fit(options, model, tokenizer)
    if options.objective == GAUSSIAN:
        _condition(options, model, tokenizer, training)
    return Prepared(tokenizer, model, training, validation, split.description, mark)


def _split(options: Options) -> Split:
    files = readers.find_files(options.texts)
    if options.validation:
        return holding_out.given(files, readers.find_files(options.validation), options.column)
    return holding_out.drawn(files, options.column, options.hold_out, options.seed)


def _tokenizer(options: Options, split: Split) -> tuple[Any, Any]:
    """(tokenizer, the rows of the embeddings that are kept or None)."""
    if options.init.startswith(SCRATCH):
        longest = max(_POSITIONS, options.length)
        made = vocabulary.learn(split.training, options.vocabulary, options.vocabulary_size, not options.cased, longest)
        return made, None
    tokenizer = starting.load_tokenizer(options.init, options.trust_remote_code)
    if options.plain_marks:
        tokenizer = pruning.with_plain_marks(tokenizer)
    if options.prune is None:
        return tokenizer, None
    return pruning.prune(tokenizer, split.training(), options.prune)


def _corpora(options: Options, split: Split, tokenizer: Any, folder: Path, mark: str) -> tuple[Corpus, Corpus]:
    done = folder / "prepared.json"
    if done.is_file() and read_json(done).get("fingerprint") == mark:
        return corpus.load(folder / "training"), corpus.load(folder / "validation")
    if done.is_file():
        raise RunError(f"the text or the tokenizer has changed since this run began; '{folder.parent}' cannot go on")
    training = corpus.build(split.training(), tokenizer, folder / "training", sentences=options.alone > 0)
    try:
        validation = corpus.build(split.validation(), tokenizer, folder / "validation", sentences=False)
    except InputError as error:
        if "no text" not in str(error):
            raise
        raise InputError(
            "the validation split is empty; give more text, a larger --hold-out, or --validation FILE"
        ) from None
    write_json(done, {"fingerprint": mark, "split": split.description})
    return training, validation


def _model(options: Options, tokenizer: Any) -> Any:
    if options.init.startswith(SCRATCH):
        size = options.init.removeprefix(SCRATCH)
        longest = max(_POSITIONS, options.length)
        return scratch.new_model(size, options.shape, tokenizer, longest, options.dropout, options.seed)
    return starting.load_model(options.init, options.dropout, options.seed, options.trust_remote_code)


def _condition(options: Options, model: Any, tokenizer: Any, training: Corpus) -> None:
    """Gives the model its noise conditioning: the saved one of the model that it starts from, else a new one."""
    new = options.init.startswith(SCRATCH) or options.prune
    saved = None if new else load_conditioning(starting.located(options.init))
    if saved is None:
        size = int(model.config.vocab_size)
        words = Vocabulary.of(tokenizer, size)
        prior = log_prior(training.unigram_counts(size), words.ordinary, words.mask)
        torch.manual_seed(options.seed)
        saved = NoiseConditioning.beginning(model, prior, options.sigma_low, options.sigma_high)
    elif (saved.low, saved.high) != (options.sigma_low, options.sigma_high):
        raise InputError(
            f"'{options.init}' was trained with σ from {saved.low:g} to {saved.high:g}, not {options.sigma_low:g} to "
            f"{options.sigma_high:g}; go on with --sigma-range {saved.low:g} {saved.high:g}"
        )
    model.add_module(MODULE, saved.train())


def _check_fit(options: Options, model: Any, tokenizer: Any) -> None:
    if len(tokenizer) > model.config.vocab_size:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens, the model embeds {model.config.vocab_size}; they do not match"
        )
    longest = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or 1 << 30)
    if options.length > longest:
        raise InputError(f"rows of {options.length} tokens; this model reads at most {longest} (--length)")
