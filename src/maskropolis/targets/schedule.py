"""Temperature schedules: τ as a function of the step.

constant   τ = τ_0
linear     τ = τ_0 + (τ_1 − τ_0) s            s = step / (steps − 1)
geometric  τ = τ_0 (τ_1/τ_0)^s
cosine     τ = τ_1 + (τ_0 − τ_1)(1 + cos πs)/2
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from maskropolis.errors import InputError, unknown_name

SHAPES = ("constant", "linear", "geometric", "cosine")
COLDEST, HOTTEST = 1e-6, 1e6
"""The temperatures that a user may set: beyond them exp(−E/τ) is all but its modes, or uniform."""


@dataclass(frozen=True)
class Schedule:
    """τ over `steps` steps from `start` to `end`, held at `end` afterwards. With a falling τ a chain finds modes.

    Raises `InputError` for an unknown shape, or temperatures that are not positive and finite.
    """

    start: float = 1.0
    end: float | None = None
    steps: int = 1
    shape: str = "constant"

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise unknown_name("schedule", self.shape, SHAPES)
        for value in (self.start, self.last):
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"temperature {value} is out of range; expected a positive finite number")
        if self.shape == "constant" and self.last != self.start:
            raise InputError(
                f"a constant schedule cannot go from {self.start} to {self.end}; use linear, geometric or cosine"
            )
        if self.steps < 1:
            raise InputError(f"a schedule of {self.steps} steps is empty; expected at least 1")

    @property
    def last(self) -> float:
        return self.start if self.end is None else self.end

    @property
    def constant(self) -> bool:
        return self.last == self.start

    def __call__(self, step: int) -> float:
        """τ at `step`, counted from 0."""
        if self.constant:
            return self.start
        s = min(step / (self.steps - 1), 1.0) if self.steps > 1 else 1.0
        if self.shape == "linear":
            return self.start + (self.last - self.start) * s
        if self.shape == "geometric":
            return self.start * (self.last / self.start) ** s
        return self.last + (self.start - self.last) * (1 + math.cos(math.pi * s)) / 2

    def signature(self) -> str:
        if self.constant:
            return f"{self.start:g}"
        return f"{self.shape}({self.start:g}→{self.last:g},{self.steps})"
