"""Mode finding: run chains, usually with a falling temperature, and remember the states of lowest energy they met.

Chains of one length run together, for as many steps as their own length makes of the sweeps asked for, so what a chain
does depends neither on its company nor on how the work is divided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from maskropolis.chains.driver import Plan, Tick, run
from maskropolis.errors import InputError
from maskropolis.kernels.base import Kernel
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import Energy
from maskropolis.targets.schedule import Schedule

OnSweep = Callable[[int, Tensor, Sequences, Tensor], None]
"""(sweeps made, indices of the rows [K], their states, their energies [K])."""


@dataclass(frozen=True)
class Search:
    """How long, how warm, and what to remember.

    Attributes:
        sweeps: of each chain; 0 evaluates the start only.
        temperature, final_temperature, shape: the schedule of τ over a chain's steps; without a final temperature τ is
            constant.
        lowest: answer with the state of lowest energy met (the start among them), else with the last one.
        n_best: how many distinct states of lowest energy to remember for each chain.
        samples, thin: states to keep of each chain, the last one and others `thin` sweeps apart before it.
    """

    sweeps: float = 10.0
    temperature: float = 1.0
    final_temperature: float | None = None
    shape: str = "geometric"
    lowest: bool = True
    n_best: int = 1
    samples: int = 0
    thin: float = 1.0

    def __post_init__(self) -> None:
        if not self.sweeps >= 0:
            raise InputError(f"{self.sweeps:g} sweeps are out of range; expected 0 or more")
        if self.n_best < 1:
            raise InputError(f"an n-best list of {self.n_best} is empty; expected at least 1")
        if self.n_best > 1 and not self.lowest:
            raise InputError("an n-best list holds states of lowest energy; it does not go with answering by the last")
        if self.samples < 0 or not self.thin > 0:
            raise InputError(f"{self.samples} samples {self.thin:g} sweeps apart: expected at least 0 and more than 0")
        if self.samples and (self.samples - 1) * self.thin > self.sweeps:
            raise InputError(
                f"{self.samples} samples {self.thin:g} sweeps apart need {(self.samples - 1) * self.thin:g} sweeps; "
                f"there are {self.sweeps:g}"
            )
        self.schedule(2)

    def schedule(self, steps: int) -> Schedule:
        """τ over `steps` steps. Raises `InputError`."""
        shape = "constant" if self.final_temperature is None else self.shape
        return Schedule(self.temperature, self.final_temperature, max(1, steps), shape)


@dataclass
class Modes:
    """What C chains found.

    Attributes:
        sequences, energy: the answer of each chain and its energy [C] float64.
        n_best: for each chain, its distinct states of lowest energy: (energy, tokens of the row), lowest first.
        samples: for each chain, rows kept on the way: (energy, tokens of the row).
        accepted, moved, proposed: steps in which a chain accepted, in which it accepted another state than its own,
            and all; every chain a step of its own.
        rows: model rows evaluated.
    """

    sequences: Sequences
    energy: Tensor
    n_best: list[list[tuple[float, tuple[int, ...]]]]
    samples: list[list[tuple[float, tuple[int, ...]]]]
    accepted: int = 0
    moved: int = 0
    proposed: int = 0
    rows: int = 0
    _listed: list[dict[tuple[int, ...], float]] = field(default_factory=list, repr=False)

    @property
    def acceptance(self) -> float:
        return self.accepted / self.proposed if self.proposed else 0.0


def find_modes(
    model: MaskedLM,
    kernel: Kernel,
    energy: Energy,
    sequences: Sequences,
    chains: Tensor,
    search: Search,
    seed: int,
    on_sweep: OnSweep | None = None,
) -> Modes:
    """Run every chain from its row of `sequences`; `chains` [C] key the random streams.

    `energy` is what states are compared by, also for a kernel that tracks none. Raises `NumericalError` as soon as a
    chain meets NaN or infinite logits.
    """
    blank = torch.full((len(sequences),), torch.inf, dtype=torch.float64, device=sequences.device)
    empty: list[list[tuple[float, tuple[int, ...]]]] = [[] for _ in range(len(sequences))]
    modes = Modes(sequences, blank, empty, [list(one) for one in empty], _listed=[{} for _ in range(len(sequences))])
    for free in sequences.free_counts.unique().tolist():
        index = (sequences.free_counts == free).nonzero()[:, 0]
        _Group(model, kernel, energy, modes, search, index, free, on_sweep).run(chains[index.cpu()], seed)
    modes.n_best = [_ordered(listed)[: search.n_best] for listed in modes._listed]
    return modes


class _Group:
    """Chains of one length, at `index` [K] among all."""

    def __init__(
        self,
        model: MaskedLM,
        kernel: Kernel,
        energy: Energy,
        modes: Modes,
        search: Search,
        index: Tensor,
        free: int,
        on_sweep: OnSweep | None,
    ) -> None:
        self.model, self.kernel, self.energy, self.modes, self.search = model, kernel, energy, modes, search
        self.index, self.on_sweep = index, on_sweep
        self.start = modes.sequences.rows(index).trimmed()
        self.sweep = max(1, kernel.steps_per_sweep(free))
        self.steps = round(search.sweeps * self.sweep)
        self.keep = Counter(self.steps - round(k * search.thin * self.sweep) for k in range(search.samples))

    def run(self, chains: Tensor, seed: int) -> None:
        state = self.kernel.init(self.model, self.start)
        known = None if state.evaluation is None else state.energy
        self.modes.rows += 0 if state.evaluation is None else state.evaluation.rows
        self._meet(0, state.sequences, known, torch.ones_like(self.index, dtype=torch.bool))
        if not self.steps:
            return
        plan = Plan(self.steps, schedule=self.search.schedule(self.steps))
        for tick in run(self.model, self.kernel, state, chains, plan, seed):
            if tick.failed:
                raise tick.failed[0]
            self._count(tick)
            self._meet(tick.step, tick.state.sequences, self._energies(tick), tick.info.changed > 0)

    def _count(self, tick: Tick) -> None:
        self.modes.accepted += int(tick.info.accepted.sum())
        self.modes.moved += int((tick.info.changed > 0).sum())
        self.modes.proposed += len(self.index)
        self.modes.rows += tick.info.rows

    def _energies(self, tick: Tick) -> Tensor | None:
        return None if tick.state.evaluation is None else tick.state.energy

    def _meet(self, step: int, sequences: Sequences, energy: Tensor | None, changed: Tensor) -> None:
        """Take note of the states after `step` steps. Where the kernel tracks no energy, only at the ends of sweeps."""
        at_sweep, last, kept = step % self.sweep == 0, step == self.steps, self.keep[step]
        if energy is None:
            wanted = last or kept > 0 or (at_sweep and (self.search.lowest or self.on_sweep is not None))
            if not wanted:
                return
            evaluation = self.energy.evaluate(self.model, sequences)
            self.modes.rows += evaluation.rows
            energy, changed = evaluation.energy, torch.ones_like(changed)
        self._answer(sequences, energy, last)
        self._list(sequences, energy, changed)
        if kept:
            for row, chain in enumerate(self.index.tolist()):
                self.modes.samples[chain] += kept * [(float(energy[row]), _key(sequences, row))]
        if at_sweep and self.on_sweep is not None:
            self.on_sweep(step // self.sweep, self.index, sequences, energy)

    def _answer(self, sequences: Sequences, energy: Tensor, last: bool) -> None:
        before = self.modes.energy[self.index]
        better = energy < before if self.search.lowest else torch.full_like(before, last, dtype=torch.bool)
        if not bool(better.any()):
            return
        where = self.index[better]
        tokens = self.modes.sequences.tokens.clone()
        tokens[where, : sequences.width] = sequences.tokens[better]
        self.modes.sequences = replace(self.modes.sequences, tokens=tokens)
        self.modes.energy[where] = energy[better]

    def _list(self, sequences: Sequences, energy: Tensor, changed: Tensor) -> None:
        if self.search.n_best == 1:
            return
        most = 8 * self.search.n_best
        for row in changed.nonzero()[:, 0].tolist():
            listed = self.modes._listed[int(self.index[row])]
            listed[_key(sequences, row)] = float(energy[row])
            if len(listed) > most:
                kept = _ordered(listed)[: self.search.n_best]
                listed.clear()
                listed.update({tokens: value for value, tokens in kept})


def _key(sequences: Sequences, row: int) -> tuple[int, ...]:
    return tuple(sequences.tokens[row].tolist())


def _ordered(listed: dict[tuple[int, ...], float]) -> list[tuple[float, tuple[int, ...]]]:
    return sorted((value, tokens) for tokens, value in listed.items())
