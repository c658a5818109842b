"""The figures: norm energy and judge perplexity on the way, over sweeps and over model rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

AXES = {"sweeps": "sweeps (a sweep visits each position once)", "rows": "model rows, all chains"}
PANELS = {"norm_per_token": "norm energy, nats a token", "perplexity": "judge perplexity"}


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """`over_sweeps.png` and `over_rows.png`: a column for each start, bands are 95% intervals."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves = [cell for cell in results["cells"] if cell.get("curve")]
    starts = list(dict.fromkeys(cell["start"] for cell in curves))
    made = []
    for axis, label in AXES.items() if starts else ():
        figure, panels = plt.subplots(2, len(starts), figsize=(5.4 * len(starts), 7.6), squeeze=False, sharey="row")
        for column, start in enumerate(starts):
            for row, (measure, name) in enumerate(PANELS.items()):
                panel = panels[row][column]
                here = [cell for cell in results["cells"] if _belongs(cell, curves[0]["length"], start)]
                _panel(panel, here, results["references"], axis, measure)
                panel.set_title(f"from {start}" if row == 0 else "")
                panel.set_ylabel(name if column == 0 else "")
                panel.set_xlabel(label if row == 1 else "")
        handles, names = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="lower center", ncols=3, frameon=False)
        figure.suptitle(f"{curves[0]['length']} tokens, temperature 1")
        figure.tight_layout(rect=(0, 0.04 + 0.025 * -(-len(names) // 3), 1, 1))
        made.append(folder / f"over_{axis}.png")
        figure.savefig(made[-1], dpi=130)
        plt.close(figure)
    return made


def _belongs(cell: dict[str, Any], length: int, start: str) -> bool:
    return (cell["length"], cell["start"], cell["temperature"]) == (length, start, 1.0)


def _panel(panel: Any, cells: list[dict[str, Any]], references: dict[str, Any], axis: str, measure: str) -> None:
    for number, cell in enumerate(cells):
        colour = f"C{number}"
        if not cell.get("curve"):
            value = cell["energies"]["norm_per_token"] if measure == "norm_per_token" else cell["judge"]["perplexity"]
            panel.axhline(value["value"], color=colour, linestyle="--", label=cell["system"])
            continue
        points = [point for point in cell["curve"] if point[measure]["value"] is not None]
        at = [point[axis] for point in points]
        panel.plot(at, [p[measure]["value"] for p in points], color=colour, marker=".", label=cell["system"])
        low, high = ([p[measure][end] or p[measure]["value"] for p in points] for end in ("low", "high"))
        panel.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
    for real in references.get(str(cells[0]["length"]), [])[:1]:
        value = real["energies"]["norm_per_token"] if measure == "norm_per_token" else real["judge"]["perplexity"]
        panel.axhline(value["value"], color="0.35", linestyle=":", label=real["system"])
    if axis == "sweeps":
        panel.set_xscale("symlog", linthresh=1)
        panel.set_xlim(left=0)
    if measure == "perplexity":
        panel.set_yscale("log")
    panel.spines[["top", "right"]].set_visible(False)
