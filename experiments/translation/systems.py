"""The systems that the tables compare, each by its settings. Ablations use the first 300 sentences of the test set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SWEEPS = 5
ANNEALED = {"temperature": 1.0, "final_temperature": 0.1, "shape": "geometric"}
MH: dict[str, Any] = {
    "decoder": "mh", "energy": "norm", "kernel": "single-site", "start": "mask-predict", "sweeps": SWEEPS,
    "length_beam": 3, "choose": "per-token", **ANNEALED,
}  # fmt: skip
"""Complete, so that the same system has the same settings in every table and is run once."""
FEW = 300


@dataclass(frozen=True)
class System:
    """`settings` of `make_decoding`, or `beam` of the autoregressive baseline; `sentences`: how many, None for all."""

    table: str
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    beam: int | None = None
    sentences: int | None = None
    pairs: tuple[str, ...] = ("de-en",)
    path: bool = False


BOTH = ("de-en", "fr-en")


def _main() -> list[System]:
    listed = [
        System("main", "autoregressive, beam 5", beam=5, pairs=BOTH),
        System("main", "autoregressive, greedy", beam=1),
        System("main", "Mask-Predict 1", {"iterations": 1, "length_beam": 5}),
        System("main", "Mask-Predict 4", {"iterations": 4, "length_beam": 5}),
        System("main", "Mask-Predict 10", {"iterations": 10, "length_beam": 5}, pairs=BOTH),
        System("main", "Mask-Predict 10, best by raw", {**MH, "sweeps": 0, "energy": "raw"}, pairs=BOTH),
        System("main", "Mask-Predict 10, best by norm", {**MH, "sweeps": 0}, pairs=BOTH),
        System(
            "main", "Gibbs from masks",
            {"decoder": "gibbs", "start": "masks", "sweeps": SWEEPS, "length_beam": 3, "lowest": False}, pairs=BOTH,
        ),
        System(
            "main", "Gibbs from masks, annealed",
            {**MH, "decoder": "gibbs", "start": "masks", "lowest": False},
        ),
    ]  # fmt: skip
    for energy in ("raw", "norm"):
        for start in ("greedy", "mask-predict"):
            pairs = BOTH if start == "mask-predict" else ("de-en",)
            listed.append(
                System("main", f"MH {energy} from {start}", {**MH, "energy": energy, "start": start}, pairs=pairs)
            )
    return [*listed, *_chosen()]


def _chosen() -> list[System]:
    """The energy and the choice of lengths that were best on 300 validation pairs, and the same without sweeps."""
    best = {**MH, "energy": "raw", "choose": "joint"}
    return [
        System("main", "Mask-Predict 10, best by raw, joint", {**best, "sweeps": 0}),
        System("main", "MH raw from mask-predict, joint", best),
    ]


def _blocks() -> list[System]:
    kernels = {"1": "single-site", "2": "block:k=2", "4": "block:k=4"}
    return [
        System("blocks", f"MH norm, blocks of {k}", {**MH, "kernel": kernel}, sentences=FEW)
        for k, kernel in kernels.items()
    ]


def _schedules() -> list[System]:
    schedules: dict[str, dict[str, Any]] = {
        "constant 1": {"temperature": 1.0, "final_temperature": None},
        "constant 0.1": {"temperature": 0.1, "final_temperature": None},
        "geometric 3→0.1": {"temperature": 3.0},
        "linear 1→0.1": {"shape": "linear"},
        "geometric 1→0.1": {},
        "geometric 0.3→0.02": {"temperature": 0.3, "final_temperature": 0.02},
    }
    return [
        System("schedules", f"MH norm, {name}", {**MH, **changes}, sentences=FEW) for name, changes in schedules.items()
    ]


def _lengths() -> list[System]:
    return [
        System("lengths", f"{name}, length beam {beam}", {**settings, "length_beam": beam}, sentences=FEW)
        for name, settings in (("Mask-Predict 10", {"iterations": 10}), ("MH norm", MH))
        for beam in (1, 3, 5)
    ]


def _choices() -> list[System]:
    return [
        System("choices", f"MH norm, lengths by {choose} energy", {**MH, "choose": choose}, sentences=FEW)
        for choose in ("per-token", "joint")
    ]


def _paths() -> list[System]:
    return [
        System(
            "paths", f"{name} from greedy",
            {**MH, **changes, "start": "greedy", "length_beam": 1, "sweeps": 2 * SWEEPS}, sentences=FEW, path=True,
        )
        for name, changes in (
            ("MH raw", {"energy": "raw"}), ("MH norm", {"energy": "norm"}), ("Gibbs", {"decoder": "gibbs"})
        )
    ]  # fmt: skip


TABLES = {
    "main": _main(),
    "blocks": _blocks(),
    "schedules": _schedules(),
    "lengths": _lengths(),
    "choices": _choices(),
    "paths": _paths(),
}
