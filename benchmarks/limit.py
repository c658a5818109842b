"""How far an energy evaluation is from the hardware's limit.

    limit = (floating-point operations of the evaluation / its seconds) / (those of its matrix products alone / theirs)

The products are recorded from the evaluation itself and replayed on matrices of the same shapes, alternating with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.harness import Goal, benchmark
from benchmarks.models import bert_base_shaped, bundled
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM

GOAL = Goal(0.70)
ROUNDS = 5
TOKENS = 16384  # in one evaluation, so that every batch is full


class _Products(TorchFunctionMode):
    """Records the shapes of all linear maps that are evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, int, int]] = []

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function is torch.nn.functional.linear:
            given, weight = arguments[:2]
            self.shapes.append((given.numel() // given.shape[-1], weight.shape[1], weight.shape[0]))
        return function(*arguments, **(keywords or {}))


def sequences_of(model: MaskedLM, width: int, tokens: int = TOKENS, seed: int = 0) -> Sequences:
    """Random sequences of `width` tokens, all free, whose masked rows have about `tokens` tokens in all."""
    generator = torch.Generator().manual_seed(seed)
    choices = model.allowed.nonzero()[:, 0].cpu()
    count = max(1, tokens // width**2)
    drawn = choices[torch.randint(len(choices), (count, width), generator=generator)].to(model.device)
    every = torch.ones_like(drawn, dtype=torch.bool)
    return Sequences(drawn, every, every)


def limit(model: HuggingFaceMaskedLM, width: int) -> float:
    """The median over rounds of the ratio above, at sequences of `width` tokens."""
    sequences = sequences_of(model, width)
    with _counted(model), FlopCounterMode(display=False) as counter:
        NORM.evaluate(model, sequences)
    with _counted(model), _Products() as products:
        NORM.evaluate(model, sequences)
    operations = counter.get_total_flops()
    product_operations = sum(2 * a * b * c for a, b, c in products.shapes)
    matrices = {shape: _matrices(*shape, model.device) for shape in set(products.shapes)}

    @torch.inference_mode()
    def replay() -> None:
        for shape in products.shapes:
            torch.nn.functional.linear(*matrices[shape])

    ratios = []
    for _ in range(ROUNDS):
        ours, theirs = _seconds(lambda: NORM.evaluate(model, sequences)), _seconds(replay)
        ratios.append((operations / ours) / (product_operations / theirs))
        print(
            f"  T = {width}: {operations / ours / 1e9:.1f} of {product_operations / theirs / 1e9:.1f} GFLOP/s, "
            f"products are {product_operations / operations:.0%} of the operations"
        )
    return median(ratios)


@contextmanager
def _counted(model: HuggingFaceMaskedLM) -> Iterator[None]:
    """PyTorch's own products, which counters see; what is timed runs on the faster ones of `models.cpu_products`."""
    products, model._products = model._products, None
    try:
        yield
    finally:
        model._products = products


def _matrices(rows: int, inner: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, inner, device=device), torch.randn(columns, inner, device=device)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _register() -> None:
    for name, make in (("bert_base", bert_base_shaped), ("bundled", bundled)):
        for width in (16, 64):

            def measure(make: Callable[[], HuggingFaceMaskedLM] = make, width: int = width) -> float:
                return limit(make(), width)

            benchmark(f"limit.{name}.T{width}", "of the matrix-product rate", GOAL)(measure)


_register()
