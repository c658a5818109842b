"""results.md, from results.json alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Entry = dict[str, Any]
COLUMNS = (
    "system", "judge perplexity", "norm energy", "raw energy", "acceptance", "R-hat", "ESS", "ESS/s", "distinct-2",
    "self-BLEU", "unique", "start left", "sweeps", "rows", "s",
)  # fmt: skip


def page(results: Entry) -> str:
    """The page in Markdown."""
    settings = results["settings"]
    lines = [
        "# Unconditional samples",
        "",
        f"{settings['chains']} chains and {settings['rows']:,} model rows a cell, all chains together;"
        f" {settings['chains'] * settings['kept']} samples: the last {settings['kept']} of {settings['marks']} states"
        " of each chain, evenly spread over the rows. Diffusion writes as many sequences and may spend as many rows."
        " Intervals (95%) are bootstrapped by whole chains. Energies a token, of a part of the samples. R-hat and ESS"
        " are those of the energy over the second half of the rows; ESS/s counts seconds of the processor."
        " `start left` is the share of tokens at the end that stood there at the start. `s` are seconds of sampling.",
        "",
        f"Judge: `{results['judge']}`",
        "",
        f"Signature: `{results['signature']}`",
        "",
        "## Claims",
        "",
        *_claims(results["claims"]),
        "",
        *_pilot(results.get("pilot")),
    ]
    groups = dict.fromkeys((c["length"], c["start"], c["temperature"]) for c in results["cells"])
    for length, start, temperature in sorted(groups, key=lambda g: (g[0], g[1] != "masks", -g[2])):
        entries = [
            c for c in results["cells"] if (c["length"], c["start"], c["temperature"]) == (length, start, temperature)
        ]
        lines += [f"## {length} tokens, from {start}, temperature {temperature:g}", "", _line(COLUMNS), _rule(COLUMNS)]
        lines += [_line(_row(entry)) for entry in [*entries, *results["references"].get(str(length), [])]]
        lines += ["", *(f"- {entry['system']}: {entry['examples'][-1]}" for entry in entries), ""]
    return "\n".join(lines).rstrip() + "\n"


def _claims(found: list[Entry]) -> Iterator[str]:
    if not found:
        yield "No two systems to compare yet."
        return
    head = ("claim", "measure", "holds", "opposite", "undecided", "cell by cell")
    yield _line(head)
    yield _rule(head)
    for claim in found:
        cells = "; ".join(
            f"{c['length']} {c['start']} τ={c['temperature']:g}: {c['value']:.3g} ({c['low']:.3g} to {c['high']:.3g})"
            for c in claim["cells"]
        )
        counts = (str(claim[verdict]) for verdict in ("holds", "opposite", "undecided"))
        yield _line((claim["claim"], claim["measure"], *counts, cells))


def _pilot(found: Entry | None) -> Iterator[str]:
    if found is None:
        return
    yield f"## Which exact kernel is the best? ({found['length']} tokens, from masks, norm energy)"
    yield ""
    head = ("kernel", "ESS per 1,000 rows", "ESS per second", "R-hat", "acceptance", "mean energy", "rows")
    yield _line(head)
    yield _rule(head)
    for one in found["candidates"]:
        name = f"**{one['kernel']}**" if one["kernel"] == found["best"] else one["kernel"]
        numbers = (one["ess_per_1000_rows"], one["ess_per_second"], one["r_hat"], one["acceptance"], one["mean_norm"])
        yield _line((name, *map(_number, numbers), f"{one['rows']:,}"))
    yield ""


def _row(entry: Entry) -> tuple[str, ...]:
    convergence, diversity = entry.get("convergence") or {}, entry.get("diversity") or {}
    return (
        entry["system"],
        _interval(entry["judge"]["perplexity"]),
        _interval(entry["energies"]["norm_per_token"]),
        _interval(entry["energies"]["raw_per_token"]),
        _number(entry.get("acceptance")),
        _number(convergence.get("r_hat")),
        _number(convergence.get("ess")),
        _number(convergence.get("ess_per_second")),
        *(_interval(diversity.get(name)) for name in ("distinct_2", "self_bleu", "unique")),
        _number(entry.get("start_left")),
        _number(entry.get("sweeps")),
        f"{entry['rows']:,}" if "rows" in entry else "–",
        _number(entry.get("seconds")),
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _interval(found: dict[str, float | None] | None) -> str:
    if found is None or found["value"] is None:
        return "–"
    if found["low"] is None:
        return _number(found["value"])
    return f"{_number(found['value'])} ({_number(found['low'])}–{_number(found['high'])})"


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _rule(cells: tuple[str, ...]) -> str:
    return "|" + " --- |" * len(cells)
