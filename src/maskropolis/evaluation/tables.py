"""Evaluations as tables: for the terminal by rich, as Markdown; one row a measure, one column a system."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from maskropolis.evaluation.evaluating import Evaluation
from maskropolis.evaluation.intervals import Estimate


@dataclass(frozen=True)
class Measure:
    """How a measure is shown: its words, the factor and the format of its numbers."""

    label: str
    form: str = ".2f"
    factor: float = 1.0


def _share(label: str) -> Measure:
    return Measure(f"{label}, %", ".1f", 100.0)


MEASURES = {
    "judge_perplexity_per_token": Measure("judge: perplexity", ".4g"),
    "judge_perplexity_per_word": Measure("judge: perplexity by word", ".4g"),
    "judge_log_likelihood_per_token": Measure("judge: log-likelihood a token, nats", ".3f"),
    "judge_log_likelihood_per_word": Measure("judge: log-likelihood a word, nats", ".3f"),
    "energy_norm": Measure("norm energy, nats"),
    "energy_raw": Measure("raw energy, logits"),
    "energy_norm_per_token": Measure("norm energy a token", ".3f"),
    "energy_raw_per_token": Measure("raw energy a token", ".3f"),
    "bleu": Measure("BLEU"),
    "chrf": Measure("chrF"),
    "words": Measure("words a sentence"),
    "distinct_1": Measure("distinct-1", ".3f"),
    "distinct_2": Measure("distinct-2", ".3f"),
    "distinct_3": Measure("distinct-3", ".3f"),
    "self_bleu": Measure("self-BLEU"),
    "unique": _share("unique sentences"),
    "near_duplicates": _share("with a near-duplicate"),
    "repetition_1": _share("words repeated in the sentence"),
    "repetition_2": _share("bigrams repeated in the sentence"),
    "copied_run": Measure("longest copied run, words"),
    "copied_share": _share("share of words in it"),
    "copied_whole": _share("sentences copied whole"),
}
"""Every measure, in the order of the tables."""


def cell(name: str, found: Estimate | None) -> str:
    """`value [low, high]`; – for what is not there."""
    if found is None or math.isnan(found.value):
        return "–"
    shown = [_number(name, value) for value in (found.value, found.low, found.high)]
    return shown[0] if math.isnan(found.low) else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def _number(name: str, value: float) -> str:
    measure = MEASURES[name]
    if math.isinf(value):
        return "∞"
    return format(value * measure.factor, ",.0f" if 1e4 <= value < 1e9 else measure.form)


def rows(evaluation: Evaluation) -> list[list[str]]:
    """Header and body: label, then one cell a system."""
    header = ["", *(result.system.name for result in evaluation.results)]
    counts = ["sentences", *(str(len(result.system.texts)) for result in evaluation.results)]
    body = [
        [measure.label, *(cell(name, result.measures.get(name)) for result in evaluation.results)]
        for name, measure in MEASURES.items()
        if any(name in result.measures for result in evaluation.results)
    ]
    return [header, counts, *body]


def to_markdown(evaluation: Evaluation) -> str:
    """A table in Markdown, with the signature below."""
    header, *body = [[_escaped(text) for text in row] for row in rows(evaluation)]
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *body]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n`{evaluation.signature}`\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def to_rich(evaluation: Evaluation) -> Any:
    """A `rich.table.Table`."""
    from rich.table import Table
    from rich.text import Text

    header, *body = rows(evaluation)
    table = Table(box=None, pad_edge=False)
    table.add_column(header[0])
    for name in header[1:]:
        table.add_column(Text(name), justify="right")
    for row in body:
        table.add_row(*map(Text, row))
    return table


def notes(evaluation: Evaluation) -> list[str]:
    """What a reader of the table should know."""
    sizes = {len(result.system.texts) for result in evaluation.results}
    said = []
    if len(sizes) > 1:
        said.append(
            "the systems differ in size, on which distinct-n, self-BLEU, unique and near-duplicates depend; "
            "--sentences N draws equally many from each"
        )
    for result in evaluation.results:
        groups, count = len(set(result.system.groups)), len(result.system.texts)
        if groups < count:
            said.append(f"{result.system.name}: {count} states of {groups} chains; intervals draw whole chains")
            if groups < 4:
                said.append(f"{result.system.name}: too few chains for all intervals")
    return said
