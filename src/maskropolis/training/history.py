"""What a run has measured so far: one JSON line a point, and a plot of the loss."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from maskropolis.records.files import write_file
from maskropolis.training.checkpoint import disk_error

METRICS = "metrics.jsonl"
PLOT = "loss.html"


class History:
    """Points {"step", "tokens", "seconds", "loss"} and {"step", "validation_loss"} in `folder`/metrics.jsonl."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / METRICS
        self.points = read(self.path)

    def truncate(self, step: int) -> None:
        """Forget what lies after `step`: a resumed run measures it again."""
        self.points = [point for point in self.points if point["step"] <= step]
        try:
            write_file(self.path, "".join(json.dumps(point) + "\n" for point in self.points).encode())
        except OSError as error:
            raise disk_error(self.path, error) from None

    def add(self, **point: Any) -> None:
        """Append a point. Raises `RunError` if the disk is full."""
        self.points.append(point)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(point) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise disk_error(self.path, error) from None


def read(path: Path) -> list[dict[str, Any]]:
    """The points of a metrics file; a last line cut short by a kill is passed over."""
    points = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                points.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return points


def plot(points: list[dict[str, Any]], title: str) -> str:
    """The loss over tokens as one self-contained HTML page."""
    import plotly.graph_objects as go

    training = [point for point in points if "loss" in point]
    validation = [point for point in points if "validation_loss" in point]
    figure = go.Figure()
    for name, some, key, mode in (
        ("training", training, "loss", "lines"),
        ("held-out text", validation, "validation_loss", "lines+markers"),
    ):
        figure.add_trace(go.Scatter(x=[p["tokens"] for p in some], y=[p[key] for p in some], mode=mode, name=name))
    figure.update_layout(
        title=title, xaxis_title="tokens seen", yaxis_title="nats per predicted token", template="plotly_white"
    )
    return figure.to_html(full_html=True, include_plotlyjs=True)


def write_plot(folder: Path, points: list[dict[str, Any]], title: str) -> None:
    """`loss.html`. Raises `RunError` if the disk is full."""
    try:
        write_file(folder / PLOT, plot(points, title).encode())
    except OSError as error:
        raise disk_error(folder / PLOT, error) from None
