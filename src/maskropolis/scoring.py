"""Scores of sentences under a masked language model.

    PLL(x)       = Σ_{t∈F} log p_t(x_t | x_∖t)                       pseudo-log-likelihood, = −E_norm(x)
    PPPL(x)      = exp(−PLL(x) / n)                                  pseudo-perplexity, n = |F|
    E_raw(x)     = −Σ_{t∈F} f_t(x_∖t)[x_t]                           raw energy
    PLL_l2r(x)   = Σ_{t∈F} log p_t(x_t | x without t and the later tokens of t's word)
    nelbo, d3pm, any-order                                           bounds on −log p(x) as a masked diffusion
    gaussian, denoising                                              as a diffusion of embeddings; one level of it

Salazar et al. (2020); Goyal, Dyer & Berg-Kirkpatrick (2022); Kauf & Ivanova (2023) for the last, which keeps a model
from guessing the pieces of a word from one another. All but the last come from one set of n rows; it adds a row for
each token that is not the last of its word. The bounds are estimates with a standard error, each from rows of its own:
see `targets.diffusion.bounds` and, for models trained with noise, `targets.diffusion.gaussian_bound`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from maskropolis.errors import InputError, MaskropolisError, NumericalError, unknown_name
from maskropolis.models import opened
from maskropolis.models.denoising.denoiser import HuggingFaceDenoiser
from maskropolis.models.forward.rows import Rows, batches, single_mask_rows
from maskropolis.models.text.codec import TextCodec, listed_texts
from maskropolis.models.text.context import Encoded, encode_in_context
from maskropolis.records import Record
from maskropolis.sequences import Sequences
from maskropolis.targets.diffusion.any_order import any_order_bounds
from maskropolis.targets.diffusion.bounds import BOUNDS, Bound, BoundSettings, estimated_bounds
from maskropolis.targets.diffusion.gaussian_bound import GAUSSIAN, GaussianSettings, gaussian_bounds
from maskropolis.targets.energy import NORM, RAW

METRICS = ("pll", "pppl", "raw", "norm", "pll-word-l2r")
WORD_L2R = "pll-word-l2r"
ESTIMATES = (*BOUNDS, *GAUSSIAN)

Settings = BoundSettings | GaussianSettings

_CHUNK = 32
"""Sentences are scored together until their rows fill this many forward passes: room for sorting, bounded memory."""


@dataclass(frozen=True)
class SentenceScore:
    """What a model says of one sentence; the n scored tokens in order.

    Attributes:
        record: the sentence and where it came from.
        tokens: [n] vocabulary entries, e.g. `##ing`.
        log_probabilities: [n] log p_t(x_t | x_∖t), in nats.
        logits: [n] f_t(x_∖t)[x_t].
        word_l2r: [n] log-probabilities with the later tokens of the same word masked too; None if not asked for.
        bounds: the bounds on −log p(x) that were asked for, by name.
    """

    record: Record
    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    logits: tuple[float, ...]
    word_l2r: tuple[float, ...] | None = None
    bounds: dict[str, Bound] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.record.text

    @property
    def pll(self) -> float:
        """Pseudo-log-likelihood, in nats."""
        return math.fsum(self.log_probabilities)

    @property
    def pppl(self) -> float:
        """Pseudo-perplexity of this sentence."""
        return pseudo_perplexity(self.pll, len(self.tokens))

    @property
    def raw_energy(self) -> float:
        return -math.fsum(self.logits)

    @property
    def norm_energy(self) -> float:
        return -self.pll

    @property
    def pll_word_l2r(self) -> float | None:
        """Within-word left-to-right PLL, in nats; None if not asked for."""
        return None if self.word_l2r is None else math.fsum(self.word_l2r)

    def value(self, metric: str) -> float:
        """The score called `metric`, one of `METRICS` or of the bounds. Raises `InputError` if it was not asked for."""
        if metric in self.bounds:
            return self.bounds[metric].value
        if metric not in (*METRICS, *ESTIMATES):
            raise unknown_name("metric", metric, (*METRICS, *ESTIMATES))
        if metric in ESTIMATES or (metric == WORD_L2R and self.word_l2r is None):
            raise InputError(f"the metric '{metric}' was not computed; name it in the call: metric='{metric}'")
        names = {"raw": "raw_energy", "norm": "norm_energy", WORD_L2R: "pll_word_l2r"}
        return float(getattr(self, names.get(metric, metric)))


def pseudo_perplexity(pll: float, tokens: int) -> float:
    """exp(−PLL / N); infinite where a token is impossible. Salazar et al. (2020), for one sentence or a corpus."""
    mean = -pll / tokens
    return math.exp(mean) if mean < 700 else math.inf


def require_metrics(metrics: Iterable[str]) -> tuple[str, ...]:
    """The metrics named, in the order of `METRICS` and `ESTIMATES`; `all` means all of `METRICS`, the estimates are
    named one by one. Raises `InputError` for others."""
    named = set(metrics)
    for name in named - {"all", *METRICS, *ESTIMATES}:
        raise unknown_name("metric", name, (*METRICS, *ESTIMATES, "all"))
    plain = tuple(metric for metric in METRICS if "all" in named or metric in named)
    return plain + tuple(name for name in ESTIMATES if name in named)


def without_missing(metrics: tuple[str, ...], named: Sequence[str], codec: TextCodec) -> tuple[str, ...]:
    """`metrics` without what `all` among those `named` asks for but the tokenizer cannot give."""
    return metrics if codec.has_words or WORD_L2R in named else tuple(one for one in metrics if one != WORD_L2R)


def estimate_settings(
    metrics: Sequence[str], samples: int, time_steps: int, noise: str, sigma: float, seed: int
) -> list[Settings]:
    """How to estimate those of `metrics` that are estimates. Raises `InputError` for values out of range."""
    masked = [BoundSettings(name, samples, time_steps, noise, seed) for name in metrics if name in BOUNDS]
    return [*masked, *(GaussianSettings(name, samples, sigma, seed) for name in metrics if name in GAUSSIAN)]


def score(
    texts: str | Iterable[str],
    model: Any = None,
    *,
    metric: str | Sequence[str] = "pll",
    prefix: str | Sequence[str] = "",
    suffix: str | Sequence[str] = "",
    joint: str = " ",
    samples: int = 64,
    time_steps: int = 1000,
    noise: str = "log-linear",
    sigma: float = 0.5,
    seed: int = 0,
) -> list[SentenceScore]:
    """Score one or many texts: `score("The cat sat.", "bert-base-uncased")[0].pll`.

    `model` is a loaded model, a hub name or folder (loaded with the defaults of `maskropolis.load`), or None for the
    package's own. `prefix` and `suffix`, one for all or one for each text, are visible but not scored; see
    `models.text.context`. Every metric but `pll-word-l2r` is always there; naming that one adds it, and so does
    `all` where the tokenizer says which tokens form a word.
    The bounds `nelbo`, `d3pm` and `any-order` are added if named: `samples` rows each, `time_steps` and `noise` for
    d3pm; so are `gaussian` and `denoising` (at `sigma`) of a model trained with noise on its embeddings.
    Raises `InputError` naming the sentence that is empty, too long or has a mask token.
    """
    listed, named = listed_texts(texts, "the text"), listed_texts(metric, "the metric")
    metrics = require_metrics(named)
    prefixes, suffixes = _for_each(prefix, listed, "prefix"), _for_each(suffix, listed, "suffix")
    records = [
        Record(text, index, f"sentence {index}", before, after)
        for index, (text, before, after) in enumerate(zip(listed, prefixes, suffixes, strict=True), start=1)
    ]
    loaded = opened(model)
    metrics = without_missing(metrics, named, loaded.codec)
    bounds = estimate_settings(metrics, samples, time_steps, noise, sigma, seed)
    return list(score_records(records, loaded, word_l2r=WORD_L2R in metrics, joint=joint, bounds=bounds))


def _for_each(given: str | Sequence[str], texts: list[str], name: str) -> list[str]:
    spread = [given] * len(texts) if isinstance(given, str) else listed_texts(given, f"the {name}")
    if len(spread) != len(texts):
        raise InputError(f"{len(spread)} values of {name} for {len(texts)} texts; expected one for all or one for each")
    return spread


def score_records(
    records: Iterable[Record],
    model: Any,
    *,
    word_l2r: bool = False,
    joint: str = " ",
    observe: Callable[[int], None] = lambda rows: None,
    bounds: Sequence[Settings] = (),
) -> Iterator[SentenceScore]:
    """Stream scores in input order, with bounded memory; `observe` is told the rows of every forward pass.

    `bounds` are added to each score, their random numbers keyed by the line of the record. `model` is a `MaskedLM` with
    a `codec`. When a record is bad, the scores of all before it are yielded first, then its `InputError` is raised.
    `NumericalError` names the records with NaN or infinite logits.
    """
    chunk: list[tuple[Record, Encoded]] = []
    size = 0
    try:
        for record in records:
            encoded = encode_in_context(
                model.codec, record.text, record.prefix, record.suffix, joint=joint, words=word_l2r, where=record.where
            )
            chunk.append((record, encoded))
            size += len(encoded.ids) * (sum(encoded.scored) + len(_later_in_word(encoded)))
            if size >= _CHUNK * model.budget.tokens:
                yield from _score_chunk(chunk, model, word_l2r, observe, bounds)
                chunk, size = [], 0
    except NumericalError:
        raise
    except MaskropolisError:
        yield from _score_chunk(chunk, model, word_l2r, observe, bounds)
        raise
    yield from _score_chunk(chunk, model, word_l2r, observe, bounds)


def _score_chunk(
    chunk: list[tuple[Record, Encoded]],
    model: Any,
    word_l2r: bool,
    observe: Callable[[int], None],
    bounds: Sequence[Settings],
) -> Iterator[SentenceScore]:
    """Score some sentences together."""
    if not chunk:
        return
    codec = model.codec
    sequences = codec.pad([e.ids for _, e in chunk], [e.scored for _, e in chunk]).to(model.device)
    rows = single_mask_rows(sequences)
    if word_l2r:
        rows = _with_word_rows(rows, [encoded for _, encoded in chunk])
    try:
        log_probabilities, logits = _at_rows(model, sequences, rows, observe)
        bounded = _bounds(model, sequences, [record.line for record, _ in chunk], bounds)
    except NumericalError as error:
        yield from _score_chunk(chunk[: min(error.chains)], model, word_l2r, observe, bounds)
        bad = ", ".join(chunk[index][0].where for index in error.chains[:5])
        raise NumericalError(f"{error.plain} for {bad}") from None
    start, extra = 0, int(sequences.free.sum())
    for (record, encoded), found in zip(chunk, bounded, strict=True):
        stop = start + sum(encoded.scored)
        tokens = [token for token, scored in zip(encoded.ids, encoded.scored, strict=True) if scored]
        plain = log_probabilities[start:stop]
        within: list[float] | None = None
        if word_l2r:
            within = list(plain)
            for rank in _ranks(encoded):
                within[rank] = log_probabilities[extra]
                extra += 1
        yield SentenceScore(
            record, tuple(codec.pieces(tokens)), tuple(plain), tuple(logits[start:stop]),
            None if within is None else tuple(within), found,
        )  # fmt: skip
        start = stop


def _bounds(model: Any, sequences: Sequences, lines: list[int], bounds: Sequence[Settings]) -> list[dict[str, Bound]]:
    """The bounds of each sentence, by name."""
    out: list[dict[str, Bound]] = [{} for _ in lines]
    for settings in bounds:
        for one, bound in zip(out, _estimated(model, sequences, settings, lines), strict=True):
            one[settings.kind] = bound
    return out


def _estimated(model: Any, sequences: Sequences, settings: Settings, lines: list[int]) -> list[Bound]:
    if isinstance(settings, GaussianSettings):
        return gaussian_bounds(HuggingFaceDenoiser(model), sequences, settings, lines)
    estimate = any_order_bounds if settings.kind == "any-order" else estimated_bounds
    return estimate(model, sequences, settings, lines)


def _at_rows(
    model: Any, sequences: Sequences, rows: Rows, observe: Callable[[int], None]
) -> tuple[list[float], list[float]]:
    """([N] log-probabilities, [N] logits) of the true token at the asked position of every row."""
    found = torch.empty(2, len(rows), dtype=torch.float64, device=sequences.device)
    truth = sequences.tokens[rows.chain, rows.asked[:, 0]]
    for index, logits in batches(model, sequences, rows):
        found[0, index] = -NORM.term(logits[:, 0], truth[index])
        found[1, index] = -RAW.term(logits[:, 0], truth[index])
        observe(len(index))
    log_probabilities, at_truth = found.tolist()
    return log_probabilities, at_truth


def _later_in_word(encoded: Encoded) -> dict[int, list[int]]:
    """Scored positions with later scored positions in the same word -> those positions. Empty without words."""
    if encoded.words is None:
        return {}
    members: dict[int, list[int]] = {}
    for position, (word, scored) in enumerate(zip(encoded.words, encoded.scored, strict=True)):
        if scored and word is not None:
            members.setdefault(word, []).append(position)
    return {at: places[i + 1 :] for places in members.values() for i, at in enumerate(places) if i + 1 < len(places)}


def _ranks(encoded: Encoded) -> list[int]:
    """The rank among the scored tokens of each position that `_later_in_word` names."""
    rank = {position: r for r, position in enumerate(p for p, scored in enumerate(encoded.scored) if scored)}
    return [rank[position] for position in _later_in_word(encoded)]


def _with_word_rows(rows: Rows, encoded: list[Encoded]) -> Rows:
    """`rows` and, after them, one row for each position with later tokens in its word, all of which are masked."""
    extra = [(chain, at, later) for chain, one in enumerate(encoded) for at, later in _later_in_word(one).items()]
    most = max((len(later) for _, _, later in extra), default=0)
    masked = torch.tensor([[at, *later, *[at] * (most - len(later))] for _, at, later in extra], dtype=torch.long)
    asked = torch.tensor([at for _, at, _ in extra], dtype=torch.long)
    chain = torch.tensor([c for c, _, _ in extra], dtype=torch.long)

    def join(first: Tensor, second: Tensor) -> Tensor:
        return torch.cat([first, second.to(first.device)])

    return Rows(
        join(rows.chain, chain),
        join(rows.masked.expand(-1, most + 1), masked.reshape(-1, most + 1)),
        join(rows.asked, asked[:, None]),
    )
