"""The page: one HTML file with everything in it, no script, no network. All text from models and users is escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maskropolis.convergence.diagnostics import Diagnosis, StartDiagnosis, diagnose
from maskropolis.convergence.histories import History, RunLike, histories
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.records import open_output
from maskropolis.report.figures import figures
from maskropolis.report.sentences import by_energy, over_time
from maskropolis.terminal import shown


def write_report(
    run: RunLike, file: str | Path, model: HuggingFaceMaskedLM | None = None, note: str = "", overwrite: bool = False
) -> None:
    """Write the page about `run` to `file`. Raises `InputError` if it exists, unless `overwrite`."""
    page = render(run, model, note)
    with open_output(str(file), overwrite) as stream:
        stream.write(page.encode("utf-8", "replace"))


def render(run: RunLike, model: HuggingFaceMaskedLM | None = None, note: str = "") -> str:
    """The page as text. Without the model of the run, tokens are not shaded; `note` says why it is not there."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("maskropolis", "report"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    found = diagnose(run)
    unit = "nats" if run.config.get("energy", "norm") == "norm" else "logits"
    sections = [
        _section(history, start, unit, model) for history, start in zip(histories(run), found.starts, strict=True)
    ]
    return environment.get_template("page.html.jinja").render(
        style=Path(__file__).with_name("page.css").read_text(encoding="utf-8"),
        diagnosis=found,
        mood=_mood(found),
        facts=_facts(run, found),
        parts=[part.partition(":")[::2] for part in run.signature.split("|")[1:]],
        sections=sections,
        shaded=model is not None,
        note=note,
        notices=list(getattr(run, "notices", [])),
    )


def _section(history: History, found: StartDiagnosis, unit: str, model: HuggingFaceMaskedLM | None) -> dict[str, Any]:
    chains = [
        {"number": int(chain), "states": over_time(history, row, model)}
        for row, chain in enumerate(history.chains[: _CHAINS_SHOWN if history.draws else 0])
    ]
    return {
        "history": history,
        "found": found,
        "figures": figures(history, found, unit),
        "sentences": by_energy(history, model),
        "chains": chains,
        "unit": unit,
    }


_CHAINS_SHOWN = 4


def _mood(found: Diagnosis) -> str:
    return {True: "good", False: "bad", None: "open"}[found.converged]


def _facts(run: RunLike, found: Diagnosis) -> list[tuple[str, str]]:
    """Short numbers for the head of the page."""
    moves = [start.movement for start in found.starts]
    kept = sum(move.kept for move in moves)
    facts = [
        ("kept states", f"{kept:,}"),
        ("different", f"{sum(move.unique for move in moves):,}"),
        ("accepted", f"{sum(move.acceptance for move in moves) / len(moves):.1%}"),
        ("tokens changed per sweep", f"{sum(move.changed_per_sweep for move in moves) / len(moves):.2f}"),
    ]
    if len(found.starts) == 1:
        start = found.starts[0]
        for label, value in (
            ("effective draws per second", start.ess_per_second),
            ("effective draws per 1,000 model rows", start.ess_per_1000_rows),
        ):
            facts.append((label, "–" if value != value else f"{value:.3g}"))
    return facts
