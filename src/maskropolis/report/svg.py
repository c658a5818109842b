"""Small figures as inline SVG: lines, bars, stems. Colours come from the page's CSS, so that dark mode works.

Drawn here rather than by plotly: its script alone is 4 MB in every page, and a report is mailed and read on phones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from markupsafe import Markup

from maskropolis.terminal import visible

WIDTH, HEIGHT = 480, 240
LEFT, RIGHT, TOP, BOTTOM = 58, 18, 10, 42
COLOURS = 8


@dataclass
class Axes:
    """A figure with linear axes; everything drawn is in data units. `names` are those of the axes."""

    x: tuple[float, float]
    y: tuple[float, float]
    names: tuple[str, str]
    title: str
    percent: bool = False
    whole: bool = False
    _body: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.x, self.y = _wide(self.x), _wide(self.y)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def line(self, xs: Sequence[float], ys: Sequence[float], colour: int = 0, label: str = "") -> None:
        """A polyline; points that are not finite are left out."""
        pairs = zip(xs, ys, strict=True)
        points = [self.at(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        tip = f"<title>{_shown(label)}</title>" if label else ""
        self._body.append(f'<polyline class="line c{colour % COLOURS}" points="{joined}">{tip}</polyline>')

    def bar(self, left: float, right: float, height: float, label: str) -> None:
        """A bar from the bottom axis."""
        x0, y0 = self.at(left, max(height, self.y[0]))
        x1, y1 = self.at(right, self.y[0])
        self._body.append(
            f'<rect class="bar" x="{x0:.1f}" y="{y0:.1f}" width="{max(0.5, x1 - x0 - 1):.1f}" '
            f'height="{max(0.0, y1 - y0):.1f}"><title>{_shown(label)}</title></rect>'
        )

    def stem(self, x: float, y: float, label: str) -> None:
        """A thin bar from y = 0."""
        (x0, y0), (_, y1) = self.at(x, 0), self.at(x, y)
        self._body.append(
            f'<line class="stem" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x0:.1f}" y2="{y1:.1f}">'
            f"<title>{_shown(label)}</title></line>"
        )

    def shade(self, left: float, right: float, label: str) -> None:
        """A band over the whole height, for instance burn-in."""
        (x0, _), (x1, _) = self.at(left, self.y[0]), self.at(right, self.y[0])
        self._body.append(
            f'<rect class="band" x="{x0:.1f}" y="{TOP}" width="{x1 - x0:.1f}" height="{HEIGHT - TOP - BOTTOM}">'
            f"<title>{_shown(label)}</title></rect>"
        )

    def svg(self) -> Markup:
        """The figure."""
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_shown(self.title)}">',
            *self._grid(),
            *self._body,
            f'<text class="name" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}">{_shown(self.names[0])}</text>',
            f'<text class="name" transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">'
            f"{_shown(self.names[1])}</text>",
            "</svg>",
        ]
        return Markup("".join(parts))

    def _grid(self) -> list[str]:
        lines = []
        for value in ticks(*self.y):
            x, y = self.at(self.x[0], value)
            text = f"{value:.0%}" if self.percent else _short(value)
            lines.append(f'<line class="grid" x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
            lines.append(f'<text class="tick y" x="{LEFT - 6}" y="{y + 4:.1f}">{text}</text>')
        for value in ticks(*self.x):
            if self.whole and value != round(value):
                continue
            x, y = self.at(value, self.y[0])
            lines.append(f'<text class="tick x" x="{x:.1f}" y="{y + 17:.1f}">{_short(value)}</text>')
        return lines


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between `low` and `high`."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _wide(span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0, 1.0
    return (low, high) if high - low > 1e-9 * max(1.0, abs(low)) else (low - 0.5, high + 0.5)


def _short(value: float) -> str:
    if abs(value) >= 10000:
        return f"{value / 1000:g}k"
    return f"{value:g}"


def _shown(text: str) -> str:
    """Escaped for a page, control characters made visible."""
    return escape(visible(text))
