"""Randomness as an input: one counter-based stream of uniforms a chain, and the ways a kernel may use one.

A kernel turns uniforms into decisions only through `pick`, `draw` and `accept` (`hopeless` foresees the last). So an
observer can watch every decision together with its exact probabilities, which is how transition matrices are computed
from the very code that runs (`maskropolis.proof.transition`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from torch import Tensor

CHAIN, START, SWAP, AUXILIARY = range(4)
"""Purposes of a stream: streams of different purposes are independent for the same seed and chain."""

Observer = Callable[[Tensor, Tensor], None]
_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Within the context, `observer(probabilities [C, m], uniforms [C])` sees every decision before it is made.

    Outcome i of a decision is taken when the uniform lies in the i-th of m consecutive intervals of these widths.
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


class Streams:
    """A Philox-4x64 stream for each chain, keyed by (seed, chain index); position in the stream = step number.

    Each uniform is (i + 1/2) / 2^52 with a 52-bit integer i, so it lies strictly inside (0, 1). A value depends on
    (seed, chain, purpose, step, column) alone: not on batches, processes, or what was drawn before.
    """

    _ahead = 256  # steps generated at once; a matter of speed only

    def __init__(self, seed: int, chains: Sequence[int], purpose: int = CHAIN) -> None:
        self.seed, self.chains, self.purpose = int(seed), [int(c) for c in chains], purpose
        self._buffer: np.ndarray | None = None
        self._first = 0

    def uniforms(self, step: int, count: int, device: torch.device | str = "cpu") -> Tensor:
        """[C, count] float64 uniforms of `step`, each chain from its own stream."""
        blocks = max(1, -(-count // 4))
        buffer = self._buffer
        stale = buffer is None or buffer.shape[2] != 4 * blocks
        if stale or not self._first <= step < self._first + self._ahead:
            buffer = self._buffer = self._generate(step, blocks)
            self._first = step
        assert buffer is not None
        return torch.from_numpy(buffer[:, step - self._first, :count].copy()).to(device)

    def wide(self, step: int, count: int, device: torch.device | str = "cpu") -> Tensor:
        """[C, count] float64 uniforms of `step`, where the first numbers are the same for every `count`: for programs
        that use as many as a batch is wide. They are other numbers than those of `uniforms`."""
        raw = np.empty((len(self.chains), count), dtype=np.uint64)
        for row, chain in enumerate(self.chains):
            raw[row] = self._philox(chain, [0, step + 1, 0, self.purpose]).random_raw(count)
        return torch.from_numpy(_inside(raw)).to(device)

    def _generate(self, step: int, blocks: int) -> np.ndarray:
        raw = np.empty((len(self.chains), self._ahead, 4 * blocks), dtype=np.uint64)
        for row, chain in enumerate(self.chains):
            generator = self._philox(chain, [step * blocks, 0, 0, self.purpose])
            raw[row] = generator.random_raw(raw[row].size).reshape(raw[row].shape)
        return _inside(raw)

    def _philox(self, chain: int, counter: list[int]) -> np.random.Philox:
        mask = (1 << 64) - 1
        return np.random.Philox(counter=counter, key=[self.seed & mask, chain & mask])


def _inside(raw: np.ndarray) -> np.ndarray:
    """Random 64-bit words as float64 strictly inside (0, 1)."""
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def pick(counts: Tensor, uniforms: Tensor) -> Tensor:
    """[C] int64, uniform on 0 … counts−1; `counts` [C] ≥ 1, `uniforms` [C]."""
    observer = _observer.get()
    if observer is not None:
        columns = torch.arange(int(counts.max()), device=counts.device)
        observer((columns[None, :] < counts[:, None]).double() / counts[:, None], uniforms)
    return torch.minimum((uniforms * counts).long(), counts - 1)


def draw(log_weights: Tensor, uniforms: Tensor) -> Tensor:
    """[C] int64, a category from each row of `log_weights` [C, V] (unnormalised), by inverting the CDF in float64.

    One uniform a draw. Categories of weight 0 (−inf) are never drawn. float64, because float32 draws are biased
    (arXiv 2409.02908).
    """
    weights = (log_weights.double() - log_weights.amax(-1, keepdim=True).double()).exp()
    cumulated = weights.cumsum(-1)
    total = cumulated[:, -1]
    observer = _observer.get()
    if observer is not None:
        observer(weights / total[:, None], uniforms)
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, target[:, None], right=True)[:, 0]


def accept(log_ratio: Tensor, uniforms: Tensor) -> Tensor:
    """[C] bool, True with probability min(1, exp(log_ratio)). A ratio of zero or NaN is never accepted."""
    observer = _observer.get()
    if observer is not None:
        yes = torch.nan_to_num(log_ratio, nan=-torch.inf).clamp(max=0).exp()
        observer(torch.stack([yes, 1 - yes], -1), uniforms)
    return uniforms.log() < log_ratio


def hopeless(bound: Tensor, uniforms: Tensor) -> Tensor:
    """[C] bool, True where `accept` with the same uniform says no to every log ratio ≤ `bound`.

    The margin is far above rounding, so that the decision never differs. An observer is owed the exact probability of
    the decision and sees nothing cut short: all False.
    """
    if _observer.get() is not None:
        return torch.zeros_like(bound, dtype=torch.bool)
    log_u = uniforms.log()
    return log_u * (1 - 1e-9) > bound + 1e-9
