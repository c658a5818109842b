"""The figure: BLEU against energy over the sweeps of chains that start from a greedy fill."""

from __future__ import annotations

import json
from pathlib import Path


def draw_paths(work: Path, page: Path) -> None:
    """One line a system, from the start of its chains to their end, as one self-contained page."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for path in sorted(work.glob("results/*/paths-*.json")):
        entry = json.loads(path.read_text(encoding="utf-8"))
        points = entry["path"]
        figure.add_trace(
            go.Scatter(
                x=[p["energy"] for p in points], y=[p["bleu"] for p in points], mode="lines+markers",
                text=[f"sweep {p['sweep']}" for p in points], name=f"{entry['pair']}, {entry['system']}",
            )
        )  # fmt: skip
    figure.update_layout(
        title="BLEU against energy over sweeps", xaxis_title="mean energy of a sentence (each system's own)",
        yaxis_title="BLEU (tokenised, lower-cased)", template="plotly_white",
    )  # fmt: skip
    figure.update_xaxes(autorange="reversed")
    page.write_text(figure.to_html(full_html=True, include_plotlyjs=True), encoding="utf-8")
