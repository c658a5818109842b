"""Has a run converged, and how much is it worth? Every statistic by ArviZ.

R-hat is the rank-normalised split version, ESS its bulk and tail (Vehtari, Gelman, Simpson, Carpenter & Bürkner 2021,
arXiv 1903.08008). They are computed for the energy and for indicators of the text
(`maskropolis.convergence.inference_data`), start by start: chains of different starts have different targets.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from maskropolis.convergence.histories import History, RunLike, histories
from maskropolis.convergence.inference_data import agreement, indicators, quiet_arviz
from maskropolis.convergence.movement import Movement, movement
from maskropolis.convergence.rule import target_of
from maskropolis.convergence.verdict import Verdict, judge

FEW = 10
"""Below this number of kept states a chain, the energy is judged from every step since burn-in."""

_LARGEST_R_HAT = 1e6


@dataclass(frozen=True)
class Quantity:
    """ArviZ's statistics of one number along the chains. NaN where they do not exist, as for a constant.

    Attributes:
        name: energy, agreement, or `position t`. draws: a chain.
        mean, mcse: Monte Carlo standard error of the mean. r_hat, ess_bulk, ess_tail: see the module.
        constant: whether it never changed.
    """

    name: str
    draws: int
    mean: float
    mcse: float
    r_hat: float
    ess_bulk: float
    ess_tail: float
    constant: bool


@dataclass(frozen=True)
class StartDiagnosis:
    """What is known of the chains of one start.

    Attributes:
        label: the start. chains, draws: how many, and kept states each. dropped: chains that stopped early.
        source: what the energy is judged from, `kept states` or `steps`.
        quantities: the energy first, then agreement, then positions whose token changed.
        frozen: positions whose token never changed among the kept states.
        ess_per_second, ess_per_1000_rows: bulk ESS of the energy for what was spent since burn-in.
        autocorrelation: of the energy by lag, mean over chains.
        movement: acceptance and distance. verdict: in words.
    """

    label: str
    chains: tuple[int, ...]
    draws: int
    dropped: tuple[int, ...]
    source: str
    quantities: tuple[Quantity, ...]
    frozen: tuple[int, ...]
    ess_per_second: float
    ess_per_1000_rows: float
    autocorrelation: tuple[float, ...]
    movement: Movement
    verdict: Verdict

    @property
    def energy(self) -> Quantity | None:
        return next((quantity for quantity in self.quantities if quantity.name == "energy"), None)


@dataclass(frozen=True)
class Diagnosis:
    """All starts of a run. `target` is exact, annealed or none: what the chains are to converge to."""

    signature: str
    target: str
    starts: tuple[StartDiagnosis, ...]

    @property
    def verdict(self) -> str:
        """One line for each start."""
        if len(self.starts) == 1:
            return self.starts[0].verdict.words
        return "\n".join(f"{start.label}: {start.verdict.words}" for start in self.starts)

    @property
    def converged(self) -> bool | None:
        """True, False, or None where it cannot be said."""
        answers = [start.verdict.converged for start in self.starts]
        if False in answers:
            return False
        return None if None in answers else True

    def to_json(self) -> dict[str, Any]:
        """Nested dictionaries; numbers that do not exist are null."""
        return _plain({**asdict(self), "verdict": self.verdict, "converged": self.converged})


def diagnose(run: RunLike) -> Diagnosis:
    """Diagnose a run folder or samples in memory. Raises `RunError` if it has no step yet."""
    target = target_of(run.config)
    starts = tuple(_diagnose_start(history, run.config, target) for history in histories(run))
    return Diagnosis(run.signature, target, starts)


def _diagnose_start(history: History, config: dict[str, Any], target: str) -> StartDiagnosis:
    energy, source = energy_series(history)
    changed = movement(history, config)
    found = [] if not energy.shape[1] else [measure("energy", energy)]
    frozen: list[int] = []
    if history.draws >= 4:
        found.append(measure("agreement", agreement(history)))
        for index, position in enumerate(history.positions.tolist()):
            quantity = measure(f"position {position}", indicators(history)[:, :, index])
            frozen += [position] if quantity.constant else []
            found += [] if quantity.constant else [quantity]
    ess = found[0].ess_bulk if found else math.nan
    return StartDiagnosis(
        label=history.label,
        chains=tuple(history.chains.tolist()),
        draws=history.draws,
        dropped=history.dropped,
        source=source,
        quantities=tuple(found),
        frozen=tuple(frozen),
        ess_per_second=ess / changed.seconds if changed.seconds else math.nan,
        ess_per_1000_rows=1000 * ess / changed.rows if changed.rows else math.nan,
        autocorrelation=autocorrelation(energy),
        movement=changed,
        verdict=judge(target, len(history.chains), found, changed.acceptance),
    )


def energy_series(history: History) -> tuple[np.ndarray, str]:
    """[C, D] energies to judge by: of the kept states, or of every step since burn-in where few were kept."""
    if history.draws >= FEW:
        return history.energy, "kept states"
    steps = history.step_energy()
    return (steps, "steps") if steps.shape[1] > history.draws else (history.energy, "kept states")


def measure(name: str, values: np.ndarray) -> Quantity:
    """ArviZ's statistics of `values` [C, D]. The halves of a single chain stand in for two chains in R-hat.

    R-hat is infinite where each half of a chain stays at one value, but not all at the same: ArviZ then divides by zero
    or by what rounding left of it.
    """
    draws = values.shape[1]
    constant = bool(np.ptp(values) == 0)
    nothing = Quantity(name, draws, float(values.mean()), math.nan, math.nan, math.nan, math.nan, constant)
    if draws < 4 or constant or not np.isfinite(values).all():
        return nothing
    compared = values
    if len(values) == 1:
        half = draws // 2
        compared = values[:, -2 * half :].reshape(2, half)
    with quiet_arviz() as arviz:
        return Quantity(
            name,
            draws,
            float(values.mean()),
            float(arviz.mcse(values, method="mean")),
            _finite_or_infinite(float(arviz.rhat(compared))),
            float(arviz.ess(values, method="bulk")),
            float(arviz.ess(values, method="tail")),
            constant,
        )


def _finite_or_infinite(r_hat: float) -> float:
    return math.inf if r_hat > _LARGEST_R_HAT else r_hat


def autocorrelation(values: np.ndarray, lags: int = 100) -> tuple[float, ...]:
    """Autocorrelation by lag 0 … `lags`, mean over the chains of `values` [C, D]; empty if there is none."""
    if values.shape[1] < 4 or not np.isfinite(values).all():
        return ()
    moving = values[np.ptp(values, axis=1) > 0]
    if not len(moving):
        return ()
    with quiet_arviz() as arviz:
        curves = np.asarray(arviz.autocorr(moving, axis=1))
    return tuple(float(value) for value in curves.mean(0)[: min(lags, values.shape[1] // 2) + 1])


def _plain(value: Any) -> Any:
    """JSON without NaN; numpy numbers as Python's."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
