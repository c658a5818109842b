"""Runs a kernel, or diffusion, until its model rows are spent, and records states at evenly spread numbers of rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maskropolis.decoders.diffusion.ancestral import Ancestral
from maskropolis.decoders.diffusion.remasking import Remasking
from maskropolis.decoders.diffusion.reverse import diffuse, stream_source
from maskropolis.decoders.writing import Writing
from maskropolis.kernels.base import Kernel, State
from maskropolis.randomness import START, Streams
from maskropolis.sequences import Sequences


class Counted:
    """A model that counts the rows it is asked for."""

    def __init__(self, model: Any) -> None:
        self._model, self.rows = model, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def logits(self, sequences: Sequences, positions: Tensor) -> Tensor:
        self.rows += len(sequences)
        found: Tensor = self._model.logits(sequences, positions)
        return found


@dataclass(frozen=True, eq=False)
class Walk:
    """What C chains did. M marks, S steps.

    Attributes:
        rows: [M + 1] model rows spent at each mark, all chains together; the first is the start.
        steps: [M + 1] steps made. tokens: [M + 1, C, T].
        energy: [S, C] after each step, NaN where the kernel tracks none. spent: [S] rows after each step.
        accepted: [C] share of proposals accepted. changed: [C] tokens changed, counted at every step.
        seconds, processor_seconds: of the steps and the start.
    """

    rows: np.ndarray
    steps: np.ndarray
    tokens: np.ndarray
    energy: np.ndarray
    spent: np.ndarray
    accepted: np.ndarray
    changed: np.ndarray
    seconds: float
    processor_seconds: float

    def settled_energy(self) -> np.ndarray:
        """[C, S'] energies after the steps of the second half of the rows; S' = 0 where there are none."""
        later = self.energy[self.spent > self.rows[-1] / 2].T
        return later if later.size and bool(np.isfinite(later).all()) else later[:, :0]


def walk(
    model: Any,
    kernel: Kernel,
    start: Sequences,
    rows: int,
    marks: int,
    seed: int,
    temperature: Callable[[float], float],
    paid: int = 0,
) -> Walk:
    """Step until `rows` are spent, `paid` before and the evaluation of the start included.

    `temperature` gives τ by the share of the rows that is spent. The step in which the rows run out is finished. A mark
    that a step passes records the state after it. Chains that spend nothing any more end after as many steps as rows.
    """
    began, processor = time.perf_counter(), time.process_time()
    counted, streams = Counted(model), Streams(seed, range(len(start)))
    state: State = kernel.init(counted, start)
    spent = paid + counted.rows
    record = [(spent, 0, start.tokens.numpy())]
    energy, after, accepted, changed = [], [], np.zeros(len(start)), np.zeros(len(start))
    while spent < rows and state.step < rows:
        uniforms = streams.uniforms(state.step, kernel.uniforms_per_step, start.device)
        state, info = kernel.step(model, state, temperature(spent / rows), uniforms)
        spent += info.rows
        energy.append(state.energy.numpy().copy())
        after.append(spent)
        accepted += info.accepted.numpy()
        changed += info.changed.numpy()
        while len(record) <= marks and spent >= rows * len(record) / marks:
            record.append((spent, state.step, state.sequences.tokens.numpy()))
    record += [(spent, state.step, state.sequences.tokens.numpy())] * (marks + 1 - len(record))
    return Walk(
        rows=np.array([one[0] for one in record]),
        steps=np.array([one[1] for one in record]),
        tokens=np.stack([one[2] for one in record]),
        energy=np.array(energy).reshape(-1, len(start)),
        spent=np.array(after),
        accepted=accepted / max(1, state.step),
        changed=changed,
        seconds=time.perf_counter() - began,
        processor_seconds=time.process_time() - processor,
    )


@dataclass(frozen=True, eq=False)
class Written:
    """What diffusion wrote: tokens [N, T], the rows and the time that it cost, and its sampler's signature."""

    tokens: np.ndarray
    rows: int
    seconds: float
    processor_seconds: float
    signature: str


def write(model: Any, start: Sequences, rows: int, seed: int, temperature: float) -> Written:
    """Diffusion from the masks of `start` with at most `rows` in all: as many steps as that pays for each sequence.

    With more steps than masks, written tokens may be masked again, one a step on average, so that the rows have a use.
    """
    began, processor = time.perf_counter(), time.process_time()
    steps = max(1, rows // len(start))
    masks = int((start.free & (start.tokens == model.mask_token)).sum(1).max())
    remasking = Remasking("cap", 1 / masks) if steps > masks else Remasking()
    sampler = Ancestral(steps, "log-linear", Writing(temperature), remasking)
    source = stream_source(Streams(seed, range(len(start)), START), start.width, start.device)
    done = diffuse(model, start, sampler, source)
    return Written(
        done.sequences.tokens.numpy(),
        done.rows,
        time.perf_counter() - began,
        time.process_time() - processor,
        sampler.signature(),
    )


def half_masked(model: Any, sequences: Sequences, seed: int) -> Sequences:
    """Each free token masked with probability 1/2: where diffusion begins from text."""
    uniforms = Streams(seed, range(len(sequences)), START).uniforms(1_000_000, sequences.width, sequences.device)
    hidden = sequences.free & (uniforms < 0.5)
    return Sequences(
        sequences.tokens.masked_fill(hidden, model.mask_token), sequences.free, sequences.attention, sequences.source
    )


def tokens_as(sequences: Sequences, tokens: np.ndarray) -> Sequences:
    """`tokens` [N, T] framed like the first row of `sequences`; all rows of one length."""
    count = len(tokens)
    return Sequences(
        torch.as_tensor(tokens, dtype=torch.long),
        sequences.free[:1].expand(count, -1),
        sequences.attention[:1].expand(count, -1),
    )
