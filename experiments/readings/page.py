"""results.json as tables (results.md and the section of docs/readings.md) and as a figure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from writers import READINGS

BEGIN, END = "<!-- figures: experiments/readings/run.py table -->", "<!-- end of figures -->"


def estimate(of: Any) -> dict[str, float | None]:
    """An `Estimate` for JSON: null for what is not a number."""
    found = {name: getattr(of, name) for name in ("value", "low", "high")}
    return {name: round(value, 5) if math.isfinite(value) else None for name, value in found.items()}


def tables(results: dict[str, Any]) -> str:
    """What the models say of held-out sentences, and what they write, in Markdown."""
    settings, machine = results["settings"], results["machine"]
    trial = "" if results["scale"] == "full" else "Figures of a trial; they show nothing.\n\n"
    sentences = next(iter(results["models"].values()))["sentences"]
    note = (
        f"`{settings['init']}` trained for {settings['steps']} steps of {settings['rows']} rows with each objective. "
        f"{sentences} held-out sentences, {settings['texts']} texts of {settings['tokens']} tokens from each sampler; "
        f"95% intervals by bootstrap. {machine['cpu']}, {settings['threads']} thread, seed {settings['seed']}, version "
        f"{results['versions']['maskropolis']}."
    )
    return trial + _models(results) + "\n\n" + _systems(results) + "\n\n" + note


def _models(results: dict[str, Any]) -> str:
    lines = [
        "**Held-out sentences, nats per token** (less is better)",
        "",
        "| model | one token hidden (−PLL) | 15% hidden | bound on −log p: masked diffusion "
        "| bound: Gaussian diffusion | noise σ = 0.5 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, about in results["models"].items():
        found = about["numbers"]
        cells = [_number(found[key]) for key in ("pseudo_likelihood", "hidden", "nelbo", "gaussian", "denoising")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _systems(results: dict[str, Any]) -> str:
    lines = [
        "**Side by side: what each reading writes**",
        "",
        "| model | reading | sampler | validation bound | judge perplexity | self-BLEU | distinct-2 | E_norm a token "
        "| seconds a text |",
        "| --- | --- | --- | ---: | --- | --- | --- | ---: | ---: |",
    ]
    for row in results["systems"]:
        bound = bound_of(results, row)
        lines.append(
            f"| {row['model']} | {READINGS[row['sampler']]} | {row['sampler']} | {bound:.2f} "
            f"| {_number(row['judge_perplexity_per_token'], 0)} | {_number(row['self_bleu'], 1)} "
            f"| {_number(row['distinct_2'])} | {row['energy_per_token']:.2f} | {row['seconds_per_text']:.2f} |"
        )
    books = results["books"]
    lines.append(
        f"| the books | | | | {_number(books['judge_perplexity_per_token'], 0)} | {_number(books['self_bleu'], 1)} "
        f"| {_number(books['distinct_2'])} | | |"
    )
    return "\n".join(lines)


def bound_of(results: dict[str, Any], system: dict[str, Any]) -> float:
    """Nats per token: the Gaussian bound for Langevin dynamics, that of masked diffusion for all else."""
    found = results["models"][system["model"]]["numbers"]
    return float(found["gaussian" if system["sampler"] == "langevin" else "nelbo"]["value"])


def _number(made: dict[str, Any] | None, digits: int = 2) -> str:
    if not made or made["value"] is None:
        return ""
    inside = f" ({made['low']:.{digits}f}–{made['high']:.{digits}f})" if made["low"] is not None else ""
    return f"{made['value']:.{digits}f}{inside}"


def put_into(page: Path, made: str) -> None:
    """Replace what stands between the marks of the page. Raises `SystemExit` if they are not there."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"'{page}' has no place for the tables; expected the lines {BEGIN} and {END}")
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


COLOURS = {
    "gibbs": "#7a7a7a", "metropolis-hastings": "#1f5fa8", "mask-predict": "#3b8f4a", "langevin": "#8a4fa3",
    "diffusion": "#c8641e",
}  # fmt: skip


def draw(results: dict[str, Any], file: Path) -> None:
    """Left: the bounds of the models. Right: judge perplexity over self-BLEU of what each reading writes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    _draw_bounds(left, results)
    _draw_samples(right, results)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120, metadata={"Software": ""})
    plt.close(figure)


def _draw_bounds(axis: Any, results: dict[str, Any]) -> None:
    marks = (("pseudo_likelihood", "o", "−PLL"), ("hidden", "s", "15% hidden"), ("nelbo", "D", "masked diffusion"),
             ("gaussian", "^", "Gaussian diffusion"))  # fmt: skip
    names = list(results["models"])[::-1]
    for key, mark, label in marks:
        found = [(y, results["models"][name]["numbers"][key]) for y, name in enumerate(names)]
        found = [(y, one) for y, one in found if one and one["value"] is not None]
        if found:
            axis.plot([one["value"] for _, one in found], [y for y, _ in found], mark, label=label, ms=6)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("nats per held-out token")
    axis.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)


def _draw_samples(axis: Any, results: dict[str, Any]) -> None:
    seen: set[str] = set()
    for row in results["systems"]:
        sampler = row["sampler"]
        label = None if sampler in seen else sampler
        seen.add(sampler)
        at = row["self_bleu"]["value"], row["judge_perplexity_per_token"]["value"]
        axis.plot(
            [at[0]], [at[1]], "o", color=COLOURS[sampler], label=label, ms=7 if row["model"] == "storybook" else 4
        )
    books = results["books"]
    axis.plot([books["self_bleu"]["value"]], [books["judge_perplexity_per_token"]["value"]], "k*", ms=11, label="books")
    axis.set_yscale("log")
    axis.set(xlabel="self-BLEU (less: more different)", ylabel="judge perplexity per token")
    axis.legend(
        frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3,
        title="large: storybook, small: trained on", title_fontsize=8,
    )  # fmt: skip
