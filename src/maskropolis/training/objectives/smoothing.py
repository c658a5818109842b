"""Cross-entropy with label smoothing: (1 − ε)·(−log p(y)) + ε/V · Σ_w (−log p(w)). Szegedy et al. (2016)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Loss and gradient together, so that no tensor of [M, V] outlives a portion of rows.

    The gradient of a portion is softmax(h W^T + b) − target, with target = (1 − ε)·onehot + ε/V.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, labels, smoothing, rows):  # type: ignore[no-untyped-def]
        size = weight.shape[0]
        grad_hidden, grad_weight = torch.empty_like(hidden), None
        grad_bias = torch.zeros(size, device=hidden.device) if bias is not None else None
        total = hidden.new_zeros((), dtype=torch.float32)
        for start in range(0, len(hidden), rows):
            part, truth = hidden[start : start + rows], labels[start : start + rows]
            logits = F.linear(part, weight, bias).float()
            top = logits.amax(1, keepdim=True)
            mean = logits.mean(1) if smoothing else 0.0
            at = logits.gather(1, truth[:, None])[:, 0]
            logits.sub_(top).exp_()
            norm = logits.sum(1, keepdim=True)
            log_norm = norm.log()[:, 0] + top[:, 0]
            total += (log_norm - (1 - smoothing) * at - smoothing * mean).sum()
            logits.div_(norm)
            if smoothing:
                logits.sub_(smoothing / size)
            logits.scatter_add_(1, truth[:, None], torch.full_like(at, smoothing - 1)[:, None])
            if grad_bias is not None:
                grad_bias += logits.sum(0)
            gradient = logits.to(hidden.dtype)
            torch.mm(gradient, weight, out=grad_hidden[start : start + rows])
            product = gradient.t() @ part
            grad_weight = product.float() if grad_weight is None else grad_weight.add_(product)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return total

    @staticmethod
    def backward(ctx, scale):  # type: ignore[no-untyped-def]
        grads = [None if g is None else g * scale.to(g.dtype) for g in ctx.saved_tensors]
        return (*grads, None, None, None)


def projected_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float = 0.0, rows: int = 512
) -> Tensor:
    """Sum over M positions of the smoothed cross-entropy of logits = hidden·weight^T + bias, in float32.

    hidden [M, d], weight [V, d], bias [V] or None, labels [M]. Under autocast the products are in its precision.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    with torch.autocast(device, enabled=False):
        total: Tensor = _ProjectedCrossEntropy.apply(hidden, weight, bias, labels, smoothing, rows)
    return total
