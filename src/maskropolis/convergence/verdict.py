"""The verdict in words: whether chains agree, and what to do if they do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

LARGEST_R_HAT = 1.01
SMALLEST_ESS = 400
"""Vehtari et al. (2021): R-hat ≤ 1.01, and 400 effective draws before R-hat and ESS can be trusted themselves."""


class Judged(Protocol):
    """The part of `Quantity` that a verdict needs."""

    @property
    def name(self) -> str: ...
    @property
    def draws(self) -> int: ...
    @property
    def r_hat(self) -> float: ...
    @property
    def ess_bulk(self) -> float: ...
    @property
    def ess_tail(self) -> float: ...
    @property
    def constant(self) -> bool: ...


@dataclass(frozen=True)
class Verdict:
    """`converged` is None where it cannot be said; `words` says why and what to do, in one line."""

    converged: bool | None
    words: str


def judge(target: str, chains: int, quantities: Sequence[Judged], acceptance: float) -> Verdict:
    """A verdict on the chains of one start. `target` is exact, annealed or none."""
    if target == "annealed":
        return Verdict(
            None,
            "annealed: the temperature changed, so there is no fixed target to converge to; compare the energies that "
            "the chains ended with",
        )
    verdict = _judge_numbers(chains, quantities, acceptance)
    if target == "none":
        words = "no declared target (Gibbs): even agreement would not mean convergence to exp(−E/τ); " + verdict.words
        return Verdict(None if verdict.converged else verdict.converged, words)
    return verdict


def _judge_numbers(chains: int, quantities: Sequence[Judged], acceptance: float) -> Verdict:
    energy = next((q for q in quantities if q.name == "energy"), None)
    if energy is None or energy.draws < 4:
        return Verdict(None, f"too few samples to say ({energy.draws if energy else 0} a chain); keep at least 100")
    if energy.constant:
        return Verdict(
            False,
            f"the energy never changed in {energy.draws} draws (acceptance {acceptance:.0%}): the chains are stuck; "
            "use another kernel or a higher temperature",
        )
    worst = max((q for q in quantities if not math.isnan(q.r_hat)), key=lambda q: q.r_hat, default=None)
    if worst is None:
        return Verdict(None, "the energies are not all finite, so nothing can be said")
    least = min(min(q.ess_bulk, q.ess_tail) for q in quantities if not math.isnan(q.r_hat))
    alone = " (one chain: its halves were compared; run at least 4)" if chains == 1 else ""
    if math.isinf(worst.r_hat):
        return Verdict(
            False,
            f"R-hat of {worst.name} is infinite (it never changes within a chain or half of it, but between them): "
            f"not converged{alone}; {_advice(math.inf)}",
        )
    if worst.r_hat > LARGEST_R_HAT:
        return Verdict(
            False,
            f"R-hat {worst.r_hat:.2f} of {worst.name} > {LARGEST_R_HAT}: not converged{alone}; "
            + _advice(max(needed_for(worst.r_hat), SMALLEST_ESS / least)),
        )
    if least < SMALLEST_ESS:
        return Verdict(
            None,
            f"R-hat {worst.r_hat:.3f} ≤ {LARGEST_R_HAT}, but only {least:.0f} effective draws of "
            f"{SMALLEST_ESS} needed to trust it{alone}; " + _advice(SMALLEST_ESS / least),
        )
    return Verdict(
        True, f"R-hat {worst.r_hat:.3f} ≤ {LARGEST_R_HAT} and {least:.0f} effective draws: no sign of trouble{alone}"
    )


def needed_for(r_hat: float) -> float:
    """How many times longer a run must be for R-hat 1.01, if the rest stays: R-hat² − 1 falls as 1 / length."""
    return (r_hat**2 - 1) / (LARGEST_R_HAT**2 - 1)


def _advice(times: float) -> str:
    longer = f"run about {math.ceil(times)} times longer" if times <= 50 else "run more than 50 times longer"
    if times > 20:
        return f"{longer} or use a kernel that mixes faster (path, informed, tempering: see `maskropolis kernels`)"
    return longer
