"""results.json as tables (results.md and the section of docs/steering.md) and as figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BEGIN, END = "<!-- evidence: experiments/steering/run.py table -->", "<!-- end of evidence -->"


def tables(results: dict[str, Any]) -> str:
    """What has been measured so far, in Markdown."""
    parts = [_style(results), _keywords(results), _reactions(results)]
    scale = "" if results["scale"] == "full" else "These are figures of a trial; they show nothing.\n\n"
    intervals = (
        f"Intervals of 95%: bootstrap over chains. {results['machine']['cpu']}, one thread, seed {results['seed']}, "
        f"version {results['versions']['maskropolis']}."
    )
    return scale + "\n\n".join(part for part in parts if part) + "\n\n" + intervals


def _style(results: dict[str, Any]) -> str:
    found, trained = results.get("style"), results.get("classifier")
    if not (found and trained):
        return ""
    plain, *steered = found["alphas"]
    books = found["passages"]
    accuracy = {name: percent(trained[name]["accuracy"]) for name in ("expert", "judge")}
    lines = [
        f"**Author style.** {len(trained['authors'])} authors, {trained['expert']['training']} sentences for each "
        f"classifier, no sentence for both. On {trained['held_out']} sentences of books that neither was trained on, "
        f"the expert is right in {accuracy['expert']}, the judge of style in {accuracy['judge']}; the two agree on "
        f"{plain['agreement']:.0%} of what the plain chain writes.",
        "",
        "| | success (expert) | success (judge) | perplexity | E_MLM a token | model rows a state | states |",
        "| --- | --- | --- | --- | --- | ---: | ---: |",
        f"| plain chain | {percent({'value': 1 / len(trained['authors'])})} by chance | | {_fluency(plain)} "
        f"| {plain['rows'] / plain['states']:.0f} | {plain['states']} |",
    ]
    for row in steered:
        lines.append(
            f"| α = {row['alpha']:g} | {percent(row['success_expert'])} | {percent(row['success_judge'])} "
            f"| {_fluency(row)} | {row['rows'] / row['states']:.0f} | {row['states']} |"
        )
        kept = row["rejection"]
        cost = f"{kept['rows'] / kept['kept']:.0f}" if kept["kept"] else ""
        lines.append(
            f"| rejection, the same rows | {percent(kept['success_expert'])} | {percent(kept['success_judge'])} "
            f"| {_fluency(kept)} | {cost} | {kept['kept']} of {kept['draws']} |"
        )
    lines.append(
        f"| sentences of the books | {percent(books['success_expert'])} | {percent(books['success_judge'])} "
        f"| {_fluency(books)} | | {books['states']} |"
    )
    return "\n".join(lines)


def _keywords(results: dict[str, Any]) -> str:
    found = results.get("keywords")
    if not found:
        return ""
    lines = [
        f"**Required words.** {len(found['words'])} words and {len(found['pairs'])} pairs, each in chains of its own.",
        "",
        "| | satisfied | perplexity | E_MLM a token | states |",
        "| --- | --- | --- | --- | ---: |",
    ]
    lines += [
        f"| {row['system']} | {percent(row['satisfied'])} | {_fluency(row)} | {row['states']} |"
        for row in found["systems"]
    ]
    return "\n".join(lines)


def _reactions(results: dict[str, Any]) -> str:
    found = results.get("reactions")
    if not found:
        return ""
    lines = [
        f"**Reactions.** {len(found['reactions'])} products stand, all tokens before the arrow are sampled by "
        f"rxnmapper with `{found['kernel']}`; valid is what RDKit reads.",
        "",
        "| smiles-validity | valid reactant sides | invalid molecules | E_MLM a token | different | rows a state |",
        "| --- | --- | --- | --- | ---: | ---: |",
    ]
    for row in found["weights"]:
        name = f"α = {row['weight']:g}" if row["weight"] else "without"
        lines.append(
            f"| {name} | {percent(row['valid'])} | {number(row['invalid_molecules'])} | {number(row['energy'])} "
            f"| {row['distinct']} of {row['states']} | {row['rows'] / row['states']:.0f} |"
        )
    return "\n".join(lines)


def _fluency(row: dict[str, Any]) -> str:
    return f"{number(row['perplexity'], 0)} | {number(row['energy'])}"


def percent(made: dict[str, Any]) -> str:
    if not made or made["value"] is None:
        return ""
    inside = f" ({made['low']:.0%}–{made['high']:.0%})" if made.get("low") is not None else ""
    return f"{made['value']:.0%}{inside}"


def number(made: dict[str, Any], digits: int = 2) -> str:
    if not made or made["value"] is None:
        return ""
    inside = f" ({made['low']:.{digits}f}–{made['high']:.{digits}f})" if made.get("low") is not None else ""
    return f"{made['value']:.{digits}f}{inside}"


def without_folder(value: Any, folder: Path) -> Any:
    """The same results, with files in `folder` named by their place in it: signatures hold the folders of experts."""
    if isinstance(value, dict):
        return {key: without_folder(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [without_folder(item, folder) for item in value]
    return value.replace(f"{folder}/", "") if isinstance(value, str) else value


def links(results: dict[str, Any]) -> str:
    """To the figures of what has been measured, as seen from docs/."""
    names = [name for name in ("style", "keywords", "reactions") if name in results]
    return "Figures: " + ", ".join(f"[{name}](../experiments/steering/{name}.png)" for name in names) + "."


def put_into(page: Path, made: str) -> None:
    """Replace what stands between the marks of the page. Raises `SystemExit` if they are not there."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"'{page}' has no place for the tables; expected the lines {BEGIN} and {END}")
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def figures(results: dict[str, Any], folder: Path) -> list[Path]:
    """A figure for each part that has been measured."""
    import matplotlib

    matplotlib.use("Agg")
    made = []
    for name, draw in (("style", _draw_style), ("keywords", _draw_keywords), ("reactions", _draw_reactions)):
        if name in results:
            figure = draw(results[name])
            made.append(folder / f"{name}.png")
            figure.savefig(made[-1], dpi=120, metadata={"Software": ""})
    return made


BLUE, ORANGE, GREY = "#1f5fa8", "#c8641e", "#7a7a7a"


def _panels(count: int, width: float = 4.2) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, count, figsize=(width * count, 3.5), layout="constrained")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _errors(made: list[dict[str, Any]]) -> Any:
    """[2, N] distances to the ends of the intervals; 0 where there is none."""
    below = [e["value"] - e["low"] if e.get("low") is not None else 0.0 for e in made]
    above = [e["high"] - e["value"] if e.get("high") is not None else 0.0 for e in made]
    return [below, above]


def _draw_style(found: dict[str, Any]) -> Any:
    """Success over fluency: right and down is better. One point for each α, one for rejection at the same rows."""
    figure, axes = _panels(2)
    plain, *steered = found["alphas"]
    chance = 1 / len(plain["shares_expert"])
    for axis, name, label in zip(
        axes, ("perplexity", "energy"), ("perplexity under the judge", "E_MLM a token (nats)"), strict=True
    ):
        for rows, colour, mark, title in (
            (steered, BLUE, "o", "chain with the expert"),
            ([row["rejection"] for row in steered if row["rejection"]["kept"]], ORANGE, "s", "rejection, same rows"),
        ):
            x, y = [row["success_judge"] for row in rows], [row[name] for row in rows]
            axis.errorbar(
                [e["value"] for e in x], [e["value"] for e in y], xerr=_errors(x), yerr=_errors(y),
                fmt=mark + ("-" if mark == "o" else ""), color=colour, capsize=2, label=title,
            )  # fmt: skip
        axis.errorbar([chance], [plain[name]["value"]], yerr=_errors([plain[name]]), fmt="D", color=GREY, label="plain")
        books = found["passages"]
        axis.plot([books["success_judge"]["value"]], [books[name]["value"]], "*", color=GREY, ms=11, label="books")
        for row in steered:
            at = (row["success_judge"]["value"], row[name]["value"])
            axis.annotate(f"α={row['alpha']:g}", at, textcoords="offset points", xytext=(5, 6), color=BLUE, fontsize=9)
        axis.set(xlabel="success by the judge of style", ylabel=label, xlim=(0, 1))
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _draw_keywords(found: dict[str, Any]) -> Any:
    figure, axes = _panels(2, 4.8)
    rows = found["systems"][::-1]
    for axis, name, label in zip(
        axes, ("satisfied", "perplexity"), ("texts with all words asked for", "perplexity under the judge"), strict=True
    ):
        made = [row[name] for row in rows]
        axis.errorbar([e["value"] for e in made], range(len(rows)), xerr=_errors(made), fmt="o", color=BLUE, capsize=3)
        axis.set_yticks(range(len(rows)), [row["system"] for row in rows])
        axis.set_ylim(-0.5, len(rows) - 0.5)
        axis.set_xlabel(label)
    axes[0].set_xlim(-0.03, 1.03)
    axes[1].set_xscale("log")
    axes[1].set_yticklabels([])
    return figure


def _draw_reactions(found: dict[str, Any]) -> Any:
    figure, axes = _panels(2)
    rows = found["weights"]
    for axis, name, label in zip(
        axes, ("valid", "energy"), ("valid reactant sides", "E_MLM a token (nats)"), strict=True
    ):
        made = [row[name] for row in rows]
        axis.errorbar(range(len(rows)), [e["value"] for e in made], yerr=_errors(made), fmt="o-", color=BLUE, capsize=3)
        axis.set_xticks(range(len(rows)), [f"{row['weight']:g}" for row in rows])
        axis.set(xlabel="weight of smiles-validity", ylabel=label)
    axes[0].set_ylim(0, 1.03)
    return figure
