"""The last layer of a BERT-like body, computed only at the positions whose hidden states are wanted.

Keys and values are needed everywhere, but queries, the attention's output and the feed-forward part only where the
output layer will look: of the last layer, 2/12 of the products remain, and nothing changes. As in `split`, no list of
architectures is kept: a layer with BERT's parts is tried, and used only if it gives what the whole body gives.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from maskropolis.models.huggingface.split import BodyAndHead


class LastLayerAtPositions:
    """`hidden(input_ids, attention_mask, positions [N, K]) -> [N, K, H]`; shares the weights of `body`.

    Raises `AttributeError` if the body has no encoder of layers with BERT's parts.
    """

    def __init__(self, body: Any) -> None:
        layers = body.encoder.layer
        self._layer = layers[-1]
        self._inner = self._layer.attention.self
        encoder = copy.copy(body.encoder)
        encoder._modules = {**body.encoder._modules, "layer": nn.ModuleList(list(layers)[:-1])}
        self._earlier = copy.copy(body)
        self._earlier._modules = {**body._modules, "encoder": encoder}

    def use(self, change: Callable[[nn.Module], Any]) -> None:
        """Run `change(body)` in the place of the body without its last layer."""
        self._earlier = change(self._earlier)

    def hidden(self, input_ids: Tensor, attention_mask: Tensor | None, positions: Tensor) -> Tensor:
        """Hidden states [N, K, H] of the last layer at `positions` [N, K]."""
        before = self._earlier(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)[0]
        at = before.gather(1, positions.unsqueeze(-1).expand(-1, -1, before.shape[-1]))
        query, key, value = (
            projected.unflatten(-1, (self._inner.num_attention_heads, -1)).transpose(1, 2)
            for projected in (self._inner.query(at), self._inner.key(before), self._inner.value(before))
        )
        visible = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        attended = self._layer.attention.output(mixed.transpose(1, 2).flatten(2), at)
        return self._layer.output(self._layer.intermediate(attended), attended)


@torch.inference_mode()
def last_layer(parts: BodyAndHead, input_ids: Tensor, tolerance: float = 1e-5) -> LastLayerAtPositions | None:
    """The shortened body, if there is one that gives the same hidden states; `input_ids` is [1, T], T ≥ 5."""
    try:
        short = LastLayerAtPositions(parts._body)
        ids = torch.cat([input_ids, input_ids.roll(1, 1)])
        for attention in (torch.ones_like(ids), _padded(ids)):
            positions = torch.tensor([[0, 2], [1, 1]], device=ids.device)
            full = parts.body(ids, attention)
            expected = full.gather(1, positions.unsqueeze(-1).expand(-1, -1, full.shape[-1]))
            scale = max(1.0, float(expected.abs().max()))
            if not (short.hidden(ids, attention, positions) - expected).abs().max() <= tolerance * scale:
                return None
    except (AttributeError, TypeError, RuntimeError, ValueError, IndexError):
        return None
    return short


def _padded(ids: Tensor) -> Tensor:
    """An attention mask that hides the last two positions of the second row."""
    attention = torch.ones_like(ids)
    attention[1, -2:] = 0
    return attention
