"""A mixture of kernels: each step moves a chain by one of them.

    K(x → x') = Σ_i w_i K_i(x → x'),    π K_i = π for every i, so π K = π

`choice` is `per-chain`: every chain draws its own kernel, a reversible mixture of reversible kernels; or `by-step`: the
step number alone says which kernel moves all chains, in proportion to the weights, so that forward passes stay full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as List
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError, unknown_name
from maskropolis.kernels.base import Info, State, chains_named, register
from maskropolis.kernels.block import Block
from maskropolis.kernels.single_site import SingleSite
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, Energy

CHOICES = ("per-chain", "by-step")
_GOLDEN = (math.sqrt(5) - 1) / 2


@register("mixture", exact=True)
@dataclass(frozen=True)
class Mixture:
    """As text: `mixture:single-site=2,block(k=4)=1`. All parts have the energy of the mixture and must be exact."""

    variants: ClassVar[tuple[str, ...]] = (
        "mixture:single-site=2,block(k=3)=1,informed=1",
        "mixture:path=1,delayed=1,choice=by-step",
    )
    energy: Energy = NORM
    parts: tuple[Any, ...] = (SingleSite(), Block())
    weights: tuple[float, ...] = (2.0, 1.0)
    choice: str = "per-chain"

    def __post_init__(self) -> None:
        if self.choice not in CHOICES:
            raise unknown_name("choice", self.choice, CHOICES)
        if len(self.parts) != len(self.weights) or not self.parts or not all(w > 0 for w in self.weights):
            raise InputError(f"a mixture needs a positive weight for each kernel; got {self.weights}")
        for part in self.parts:
            if not part.exact or hasattr(part, "enumerate"):
                raise InputError(
                    f"'{part.name}' cannot be part of a mixture; expected exact kernels on one temperature and length"
                )
        object.__setattr__(self, "parts", tuple(replace(part, energy=self.energy) for part in self.parts))

    @classmethod
    def from_parts(cls, energy: Energy, parts: List[tuple[Any, float]], **settings: Any) -> Mixture:
        """The mixture of kernels with weights; the default one if there are none."""
        if not parts:
            return cls(energy, **settings)
        return cls(energy, tuple(kernel for kernel, _ in parts), tuple(weight for _, weight in parts), **settings)

    @property
    def uniforms_per_step(self) -> int:
        return 1 + max(int(part.uniforms_per_step) for part in self.parts)  # which kernel, then its own

    def steps_per_sweep(self, free: int) -> int:
        shares = [w / part.steps_per_sweep(free) for w, part in zip(self.weights, self.parts, strict=True)]
        return math.ceil(sum(self.weights) / sum(shares) - 1e-9)

    def init(self, model: MaskedLM, sequences: Sequences) -> State:
        states = [part.init(model, sequences) for part in self.parts]
        kept = [s.evaluation for s in states if s.evaluation is not None and s.evaluation.conditionals is not None]
        memory = {key: value for s in states for key, value in s.memory.items()}
        return State(sequences, kept[0] if kept else states[0].evaluation, memory=memory)

    def step(self, model: MaskedLM, state: State, temperature: float | Tensor, uniforms: Tensor) -> tuple[State, Info]:
        """`uniforms` [C, uniforms_per_step]."""
        chains, choice = len(state.sequences), self._choose(state, uniforms[:, 0])
        after, infos = state, []
        for i, part in enumerate(self.parts):
            index = (choice == i).nonzero()[:, 0]
            if not len(index):
                continue
            tau = temperature[index] if isinstance(temperature, Tensor) else temperature
            some = state if len(index) == chains else state.rows(index)
            with chains_named(index):
                moved, info = part.step(model, some, tau, uniforms[index, 1 : 1 + part.uniforms_per_step])
            after = moved if len(index) == chains else after.merged(index, moved)
            infos.append((index, info))
        return replace(after, step=state.step + 1), _joined(chains, infos)

    def _choose(self, state: State, uniforms: Tensor) -> Tensor:
        """[C] int64, which part moves each chain. By step: a low-discrepancy sequence keeps to the weights evenly."""
        weights = torch.tensor(self.weights, dtype=torch.float64, device=uniforms.device)
        if self.choice == "per-chain":
            return draw(weights.log().expand(len(uniforms), -1), uniforms)
        point = ((state.step + 0.5) * _GOLDEN) % 1.0
        part = int((weights.cumsum(0) / weights.sum() <= point).sum().clamp(max=len(weights) - 1))
        return torch.full((len(uniforms),), part, dtype=torch.long, device=uniforms.device)

    def signature(self) -> str:
        parts = [f"{part.signature()}={w:g}" for part, w in zip(self.parts, self.weights, strict=True)]
        return f"mixture({','.join(parts + ([] if self.choice == 'per-chain' else [f'choice={self.choice}']))})"


def _joined(chains: int, infos: List[tuple[Tensor, Info]]) -> Info:
    """One `Info` for all chains; fewer positions are filled up with the first."""
    if len(infos) == 1:
        return infos[0][1]
    width = max(info.positions.shape[1] for _, info in infos)
    first = infos[0][1]
    accepted, log_ratio = first.accepted.new_zeros(chains), first.log_ratio.new_zeros(chains)
    positions, changed = first.positions.new_zeros(chains, width), first.changed.new_zeros(chains)
    for index, info in infos:
        accepted[index], log_ratio[index], changed[index] = info.accepted, info.log_ratio, info.changed
        filler = info.positions[:, :1].expand(-1, width - info.positions.shape[1])
        positions[index] = torch.cat([info.positions, filler], 1)
    return Info(accepted, log_ratio, positions, changed, sum(info.rows for _, info in infos))
