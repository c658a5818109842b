"""A heat map of all point mutants of a sequence, as one HTML file that needs nothing else (plotly, about 5 MB)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from maskropolis.mutation import MutantScore
from maskropolis.records import open_output
from maskropolis.terminal import visible


def write_heatmap(path: str, scores: Sequence[MutantScore], method: str, overwrite: bool = False) -> None:
    """Positions across, substitutes down, the wild type left white. `scores` are point mutants of one sequence."""
    import plotly.graph_objects as go

    names = sorted({score.substitutes[0] for score in scores}, reverse=True)
    columns = {score.positions[0]: score.wild_type[0] for score in scores}
    positions = sorted(columns)
    row, column = {name: r for r, name in enumerate(names)}, {p: c for c, p in enumerate(positions)}
    cells: list[list[float | None]] = [[None] * len(positions) for _ in names]
    for score in scores:
        value = score.scores[method]
        cells[row[score.substitutes[0]]][column[score.positions[0]]] = value if math.isfinite(value) else None
    figure = go.Figure(
        go.Heatmap(
            z=cells, x=[f"{_shown(columns[p])}{p}" for p in positions], y=[_shown(name) for name in names],
            colorscale="RdBu", zmid=0, colorbar={"title": "nats"}, hovertemplate="%{x}%{y}: %{z:.3f}<extra></extra>",
        )
    )  # fmt: skip
    title = f"{method} of {scores[0].record.other.get('name') or scores[0].record.where}"
    figure.update_layout(title=_shown(title), xaxis_title="position", yaxis_title="substitute", template="plotly_white")
    with open_output(path, overwrite) as stream:
        stream.write(figure.to_html(full_html=True, include_plotlyjs=True).encode())


def _shown(text: str) -> str:
    """Escaped for a page, control characters made visible."""
    return escape(visible(text))
