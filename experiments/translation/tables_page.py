"""results.md, from results.json and claims.json alone."""

from __future__ import annotations

from typing import Any

Entry = dict[str, Any]
TITLES = {
    "main": "Systems",
    "blocks": "Block sizes",
    "schedules": "Annealing schedules",
    "lengths": "Length beams",
    "choices": "How lengths are chosen",
    "paths": "From a greedy fill, sweep by sweep",
}
COLUMNS = (
    "system", "BLEU", "chrF", "BLEU, running text", "norm energy", "raw energy", "accepted", "changed",
    "rows a sentence", "s a sentence",
)  # fmt: skip


def page(entries: list[Entry], claims: list[Entry]) -> str:
    """The page in Markdown."""
    lines = ["# Translation on Multi30k", "", *_preamble(entries), "", "## Claims", "", *_claims(claims)]
    for table, title in TITLES.items():
        for pair in dict.fromkeys(entry["pair"] for entry in entries):
            if rows := table_of(entries, table, pair):
                sentences = next(e["sentences"] for e in entries if (e["table"], e["pair"]) == (table, pair))
                lines += ["", f"## {title}, {pair}, {sentences:,} sentences", "", *rows]
    return "\n".join(lines).rstrip() + "\n"


def table_of(entries: list[Entry], table: str, pair: str) -> list[str]:
    """The lines of one table; none if nothing of it was measured."""
    here = [entry for entry in entries if (entry["table"], entry["pair"]) == (table, pair)]
    return [_line(COLUMNS), _rule(COLUMNS), *(_line(_row(entry)) for entry in here)] if here else []


def _preamble(entries: list[Entry]) -> list[str]:
    lines = [
        "test_2016_flickr. BLEU and chrF are sacrebleu's, lower-cased, on tokenised text as published systems report"
        " them; `running text` is detokenised and split by 13a. Energies are means a token of a system's translations"
        " under the conditional masked model, whatever made them. `accepted` counts proposals of the present token,"
        " `changed` does not. Rows and seconds include everything. In `best by …` the energy chooses among"
        " Mask-Predict's lengths and no step is made.",
    ]
    for entry in entries:
        if entry["system"] in ("Mask-Predict 10", "autoregressive, beam 5") and entry["table"] == "main":
            trained = entry["training"]
            lines += ["", f"{entry['pair']}: `{entry['signature']}`"]
            lines += [
                f"The model saw {trained['tokens']:,} target tokens ({trained['targets']}) in"
                f" {trained['minutes']:.0f} minutes."
            ]
    return lines


def _claims(claims: list[Entry]) -> list[str]:
    if not claims:
        return ["No two systems to compare yet."]
    head = ("claim", "pair", "systems", "measure", "value", "p", "p, corrected", "found")
    rows = [
        _line(
            (
                one["claim"],
                one["pair"],
                one["first"] + (f", {one['second']}" if one["second"] else ""),
                one["measure"],
                f"{one['value']:.3g}",
                f"{one['p']:.3g}",
                f"{one['p_corrected']:.3g}",
                one["verdict"],
            )
        )
        for one in claims
    ]
    return [_line(head), _rule(head), *rows]


def _row(entry: Entry) -> tuple[str, ...]:
    numbers = (entry["energy_norm_per_token"], entry["energy_raw_per_token"], entry["acceptance"], entry["mobility"])
    return (
        entry["system"],
        f"{entry['bleu']:.2f}",
        f"{entry['chrf']:.2f}",
        f"{entry['bleu_detokenised']:.2f}",
        *("–" if number is None else f"{number:.3f}" for number in numbers),
        "–" if entry["rows_per_sentence"] is None else f"{entry['rows_per_sentence']:,.0f}",
        f"{entry['seconds_per_sentence']:.3f}",
    )


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _rule(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(["---"] + ["---:"] * (len(cells) - 1)) + " |"
