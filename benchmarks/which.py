"""The table of docs/kernels.md that says which kernel to use, from mixing.json alone.

python -m benchmarks.which     # writes it into the page
"""

from __future__ import annotations

import json
import math
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
KERNELS = (
    "staged",
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


def table() -> str:
    """Squared jumps of the energy a second, in those of the plain single-site kernel."""
    results = json.loads((FOLDER / "mixing.json").read_text(encoding="utf-8"))
    columns = [results[name] for name in COLUMNS]
    equal = [one["equal_steps"] for one in columns]
    lines = [
        _line(["times plain single-site", *COLUMNS.values()]),
        "| --- |" + len(COLUMNS) * " ---: |",
        _line(["a textbook loop", *(f"{1 / one['textbook']:.2f}" for one in equal)]),
        _line(["`single-site`", *(f"{one['shortcuts']:.2f}" for one in equal)]),
    ]
    for kernel in KERNELS:
        lines.append(_line([f"`{kernel}`", *(_times(one["kernels"], kernel) for one in columns)]))
    return "\n".join(lines)


def _times(kernels: Any, kernel: str) -> str:
    """With the standard errors of both chains."""
    if kernel not in kernels:
        return "–"
    one, same = kernels[kernel], kernels["single-site"]
    plain = same["squared_jump_per_step"] * kernels[PLAIN]["steps_per_second"]
    ratio = one["squared_jump_per_second"] / plain
    error = math.hypot(one["squared_jump_relative_error"], same["squared_jump_relative_error"])
    return f"{ratio:.2f} ± {ratio * error:.2f}" if ratio else "does not move"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def written(text: str) -> str:
    """The page with the table in its place."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
