"""Sets of sentences side by side: every measure with its confidence interval, and one signature for all of them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskropolis.errors import InputError
from maskropolis.evaluation.copying import longest_copied
from maskropolis.evaluation.diversity import (
    MOST_PAIRED,
    NEAR,
    GramCounts,
    Neighbours,
    Words,
    repetition,
    split_words,
    unique_share,
)
from maskropolis.evaluation.intervals import Estimate, Resampling, of_means, of_set, of_sums
from maskropolis.evaluation.systems import System
from maskropolis.records import read_lines

if TYPE_CHECKING:
    from maskropolis.evaluation.energies import TextEnergy
    from maskropolis.evaluation.judging.judge import Judge, Judgement

Observe = Callable[[str, int, int | None], None]
"""Told of work: (what, how much was just done, how much there is in all or None)."""


@dataclass(frozen=True)
class Questions:
    """What is to be measured, beside length, diversity and repetition.

    Attributes:
        judge: a causal model, for perplexity.
        model: a masked model, for its energies.
        training: text files, also .gz, or folders of .txt files, for what was copied from them.
        references: files or lists of lines, each line the reference of the sentence at its place, for BLEU and chrF.
        tokenizer: how sacrebleu splits words.
        resampling: how intervals are made.
    """

    judge: Judge | None = None
    model: Any = None
    training: Sequence[str] = ()
    references: Sequence[Sequence[str]] = ()
    tokenizer: str = "13a"
    resampling: Resampling = field(default_factory=Resampling)


@dataclass(frozen=True)
class Result:
    """The measures of one system, by name; see `maskropolis.evaluation.tables.MEASURES`."""

    system: System
    measures: dict[str, Estimate]


@dataclass(frozen=True)
class Evaluation:
    """Results of all systems, and how they were computed."""

    signature: str
    results: list[Result]

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`; what is infinite or not there is null."""
        return {
            "signature": self.signature,
            "systems": [
                {
                    "name": result.system.name,
                    "sentences": len(result.system.texts),
                    "groups": len(set(result.system.groups)),
                    "sha256": result.system.digest,
                    "signature": result.system.signature,
                    "measures": {
                        name: {key: _finite(getattr(one, key)) for key in ("value", "low", "high")}
                        for name, one in result.measures.items()
                    },
                }
                for result in self.results
            ],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def evaluate(
    systems: Sequence[System] | Mapping[str, Sequence[str]],
    questions: Questions | None = None,
    observe: Observe = lambda what, done, total: None,
) -> Evaluation:
    """Measure systems: `evaluate({"mine": texts}, Questions(judge=Judge.load("gpt2")))`.

    The judge and the masked model see each different text once. Raises `InputError` for references that do not fit, and
    what `Judge.judge` and `energies` raise.
    """
    questions = questions or Questions()
    if isinstance(systems, Mapping):
        systems = [System.of(name, texts) for name, texts in systems.items()]
    require(systems, questions)
    words = [split_words(system.texts, questions.tokenizer) for system in systems]
    found: list[dict[str, Estimate]] = []
    for system, some in zip(systems, words, strict=True):
        found.append(_of_words(system, some, questions.resampling))
        observe("measuring diversity", 1, len(systems))
    parts = [_signature(questions)]
    if questions.training:
        copied, digest = _copied(words, questions, observe)
        parts.append(f"training:{digest[:12]}")
        for one, system, some, longest in zip(found, systems, words, copied, strict=True):
            one |= _of_copying(system, some, longest, questions.resampling)
    texts = list(dict.fromkeys(text for system in systems for text in system.texts))
    if questions.model is not None:
        known = _energies(texts, questions.model, observe)
        parts.append(f"model:{questions.model.name}@{questions.model.fingerprint()[:12]}")
        for one, system in zip(found, systems, strict=True):
            one |= _of_energies([known[text] for text in system.texts], system, questions.resampling)
    if questions.judge is not None:
        judged = _judged(texts, questions.judge, observe)
        parts.append(questions.judge.signature)
        for one, system in zip(found, systems, strict=True):
            one |= _of_judgements([judged[text] for text in system.texts], system, questions.resampling)
    if questions.references:
        for one, system in zip(found, systems, strict=True):
            measures, signatures = _of_references(system, questions)
            one |= measures
        parts += signatures
    from maskropolis import __version__

    parts.append(f"version:{__version__}")
    return Evaluation("|".join(parts), [Result(*pair) for pair in zip(systems, found, strict=True)])


def _signature(questions: Questions) -> str:
    near = f"near:{NEAR}(of {MOST_PAIRED})"
    return f"maskropolis|evaluate|words:{questions.tokenizer}|{near}|{questions.resampling.signature}"


def _of_words(system: System, words: list[Words], resampling: Resampling) -> dict[str, Estimate]:
    """Length, diversity, repetition."""
    counts = GramCounts.of(words)
    found = {"words": of_means([len(one) for one in words], system.groups, resampling)}
    for n in (1, 2, 3):
        found[f"distinct_{n}"] = of_set(partial(counts.distinct, n), system.groups, resampling)
    found["self_bleu"] = of_set(counts.self_bleu, system.groups, resampling, most=100.0)
    found["unique"] = of_set(partial(unique_share, system.texts), system.groups, resampling)
    found["near_duplicates"] = _near_duplicates(system, words, resampling)
    for n in (1, 2):
        repeated, grams = np.array([repetition(one, n) for one in words]).T
        found[f"repetition_{n}"] = of_sums(repeated, grams, system.groups, resampling)
    return found


def _near_duplicates(system: System, words: list[Words], resampling: Resampling) -> Estimate:
    chosen = np.arange(len(words))
    if len(chosen) > MOST_PAIRED:
        chosen = np.sort(np.random.default_rng(resampling.seed).permutation(len(words))[:MOST_PAIRED])
    neighbours = Neighbours.of([words[i] for i in chosen])
    return of_set(neighbours.share, np.asarray(system.groups)[chosen], resampling)


def _copied(words: list[list[Words]], questions: Questions, observe: Observe) -> tuple[list[np.ndarray], str]:
    """([N] longest runs of each system, SHA-256 of the training text)."""
    digest = hashlib.sha256()
    lines = _training_lines(questions, digest)
    together = [sentence for some in words for sentence in some]
    longest = longest_copied(together, lines, lambda count: observe("reading the training text", count, None))
    ends = np.cumsum([len(some) for some in words])[:-1]
    return np.split(longest, ends), digest.hexdigest()


def _training_files(name: str) -> list[str]:
    """The file itself, or the .txt files of a folder. Raises `InputError` if it has none."""
    files = [name] if not Path(name).is_dir() else [str(file) for file in sorted(Path(name).rglob("*.txt"))]
    if not files:
        raise InputError(f"the folder '{name}' holds no .txt files; expected the training text")
    return files


def _training_lines(questions: Questions, digest: Any) -> Iterator[Words]:
    from sacrebleu.metrics import BLEU

    split = BLEU(tokenize=questions.tokenizer).tokenizer
    for name in questions.training:
        for file in _training_files(name):
            for _, line in read_lines(file):
                digest.update(f"{line}\n".encode("utf-8", "surrogatepass"))
                yield tuple(split(line).split())


def _of_copying(system: System, words: list[Words], longest: np.ndarray, resampling: Resampling) -> dict[str, Estimate]:
    lengths = np.array([len(one) for one in words])
    return {
        "copied_run": of_means(longest, system.groups, resampling),
        "copied_share": of_sums(longest, lengths, system.groups, resampling),
        "copied_whole": of_means((longest == lengths).astype(float), system.groups, resampling),
    }


def _energies(texts: list[str], model: Any, observe: Observe) -> dict[str, TextEnergy]:
    from maskropolis.evaluation.energies import energies

    found = energies(texts, model, lambda count: observe("computing energies", count, len(texts)))
    return dict(zip(texts, found, strict=True))


def _of_energies(found: list[TextEnergy], system: System, resampling: Resampling) -> dict[str, Estimate]:
    tokens = [one.tokens for one in found]
    norm, raw = [one.norm for one in found], [one.raw for one in found]
    return {
        "energy_norm": of_means(norm, system.groups, resampling),
        "energy_raw": of_means(raw, system.groups, resampling),
        "energy_norm_per_token": of_sums(norm, tokens, system.groups, resampling),
        "energy_raw_per_token": of_sums(raw, tokens, system.groups, resampling),
    }


def _judged(texts: list[str], judge: Judge, observe: Observe) -> dict[str, Judgement]:
    judge.require(texts)
    found = judge.judge(texts, lambda count: observe("judging", count, len(texts)))
    return dict(zip(texts, found, strict=True))


def _of_judgements(found: list[Judgement], system: System, resampling: Resampling) -> dict[str, Estimate]:
    log_likelihood = [one.log_likelihood for one in found]
    measures = {}
    for unit, counts in (("token", [one.tokens for one in found]), ("word", [one.words for one in found])):
        measures[f"judge_log_likelihood_per_{unit}"] = of_sums(log_likelihood, counts, system.groups, resampling)
        measures[f"judge_perplexity_per_{unit}"] = of_sums(
            log_likelihood, counts, system.groups, resampling, lambda mean: np.exp(-mean)
        )
    return measures


def require(systems: Sequence[System], questions: Questions) -> None:
    """Raises the `InputError` that `evaluate` would, before anything heavy is loaded."""
    split_words([], questions.tokenizer)
    for name in questions.training:
        for file in _training_files(name):
            read_lines(file)
    for system in systems:
        for number, lines in enumerate(questions.references, start=1):
            if len(lines) != len(system.texts):
                raise InputError(
                    f"'{system.name}' has {len(system.texts)} sentences, but reference {number} has {len(lines)} "
                    "lines; expected one line for each sentence, in the same order"
                )


def _of_references(system: System, questions: Questions) -> tuple[dict[str, Estimate], list[str]]:
    """BLEU and chrF with sacrebleu's own bootstrap (95%, its seed), and their signatures."""
    from sacrebleu.metrics import BLEU, CHRF

    references = [list(lines) for lines in questions.references]
    measures, signatures = {}, []
    for name, metric in (("bleu", BLEU(tokenize=questions.tokenizer, references=references)),
                         ("chrf", CHRF(references=references))):  # fmt: skip
        score = metric.corpus_score(list(system.texts), None, n_bootstrap=questions.resampling.resamples)
        said = json.loads(score.format(width=12, is_json=True, signature=metric.get_signature().format()))
        mean, half = said.get("confidence_mean", math.nan), said.get("confidence_var", math.nan)
        measures[name] = Estimate(float(score.score), mean - half, mean + half)
        signatures.append(f"{name}({str(metric.get_signature()).replace('|', ',')})")
    return measures, signatures
