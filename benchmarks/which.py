"""The two tables of docs/kernels.md that say which kernel to use, from mixing.json alone.

python -m benchmarks.which     # writes them into the page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from benchmarks.harness import FOLDER
from benchmarks.work import PLAIN

PAGE = FOLDER.parent / "docs" / "kernels.md"
BEGIN, END = "<!-- evidence: python -m benchmarks.which -->", "<!-- end of evidence -->"
COLUMNS = {
    "english-norm": "norm, 10 tokens",
    "english-raw": "raw, 10 tokens",
    "english-30-norm": "norm, 30 tokens",
    "english-30-raw": "raw, 30 tokens",
    "reactions-norm": "norm, a reaction",
    "reactions-raw": "raw, a reaction",
}
OTHERS = (
    "path:k=2",
    "staged:kernel=path(k=2),terms=4",
    "path:k=4",
    "staged:kernel=path(k=4),terms=4",
    "block",
    "delayed:kernel=single-site,surrogate=grouped/3",
    "mixture:informed=1,single-site=1",
    "informed",
    "gwg:top_k=50",
    "discrete-langevin:top_k=50",
    "tempering:kernel=informed",
)
NAMES = {PLAIN: "plain single-site"}


def tables() -> str:
    """Steps per second with acceptance, and squared jumps per second, a column for each model and energy."""
    results = json.loads((FOLDER / "mixing.json").read_text(encoding="utf-8"))
    same = (PLAIN, "single-site", "staged")
    book = [f"{results[name]['textbook_steps_per_second']:.3g}" for name in COLUMNS]
    steps = _table(results, "steps of all chains a second (share accepted)", same, _steps)
    steps.insert(2, _line(["a textbook loop", *book]))
    jumps = _table(results, "squared jump of E a second", (*same, *OTHERS), _jump)
    return "\n".join([*steps, "", *jumps])


def _table(results: Any, head: str, kernels: tuple[str, ...], cell: Callable[[Any], str]) -> list[str]:
    lines = [_line([head, *COLUMNS.values()]), "| --- |" + len(COLUMNS) * " ---: |"]
    for kernel in kernels:
        found = [results[name]["kernels"].get(kernel) for name in COLUMNS]
        lines.append(_line([NAMES.get(kernel, f"`{kernel}`"), *("–" if one is None else cell(one) for one in found)]))
    return lines


def _steps(one: Any) -> str:
    return f"{one['steps_per_second']:.3g} ({one['acceptance']:.0%})"


def _jump(one: Any) -> str:
    return f"{float(one['squared_jump_per_second']):.3g} ± {one['squared_jump_relative_error']:.0%}".replace(
        "e+03", "·10³"
    )


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def written(text: str) -> str:
    """The page with the tables in their place."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
