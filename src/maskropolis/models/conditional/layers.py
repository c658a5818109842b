"""Transformer layers for conditional masked LMs: PyTorch's own, with cross-attention keys and values computed apart.

Parameters and norms are those of `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer` (and of the
`nn.MultiheadAttention` in them). Only the order of the computation is ours: keys and values of a source are computed
once (`cross`) and shared by all rows of that source, and the last layer can run at the asked positions alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskropolis.models.conditional.config import ConditionalConfig
from maskropolis.models.conditional.dropout import ByteDropout


class KeysValues(NamedTuple):
    """Of one attention: keys and values [B, H, S, D], H heads of width D."""

    keys: Tensor
    values: Tensor


class EncoderLayer(nn.TransformerEncoderLayer):
    """Self-attention and feed-forward, pre- or post-norm."""

    def __init__(self, config: ConditionalConfig) -> None:
        super().__init__(**_shape(config))
        self.dropout, self.dropout1, self.dropout2 = (ByteDropout(config.dropout) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        """x [B, S, d]; `mask` [B, 1, 1, S] bool, True where a key may be seen."""
        normed = self.norm1(x) if self.norm_first else x
        x = x + self.dropout1(attend(self.self_attn, *_split(self.self_attn, normed), mask))
        x = x if self.norm_first else self.norm1(x)
        normed = self.norm2(x) if self.norm_first else x
        inner = self.dropout(self.activation(self.linear1(normed)))
        x = x + self.dropout2(self.linear2(inner))
        return x if self.norm_first else self.norm2(x)


class DecoderLayer(nn.TransformerDecoderLayer):
    """Bidirectional self-attention, cross-attention and feed-forward, pre- or post-norm."""

    def __init__(self, config: ConditionalConfig) -> None:
        super().__init__(**_shape(config))
        self.dropout, self.dropout1, self.dropout2, self.dropout3 = (ByteDropout(config.dropout) for _ in range(4))

    def cross(self, memory: Tensor) -> KeysValues:
        """Keys and values of the cross-attention for encoded sources [B, S, d]."""
        attention, width = self.multihead_attn, self.multihead_attn.embed_dim
        both = F.linear(memory, attention.in_proj_weight[width:], attention.in_proj_bias[width:])
        return KeysValues(*(_heads(part, attention.num_heads) for part in both.chunk(2, -1)))

    def mix(
        self, x: Tensor, mask: Tensor | None, memory: KeysValues, memory_mask: Tensor | None, asked: Tensor | None
    ) -> Tensor:
        """Both attentions: x [N, T, d] -> [N, T, d], or [N, K, d] at the positions `asked` [N, K] alone.

        `mask` [N, 1, 1, T] and `memory_mask` [N, 1, 1, S] are True where a key may be seen; `memory` has N rows.
        """
        normed = self.norm1(x) if self.norm_first else x
        query, own = _split(self.self_attn, normed)
        if asked is not None:
            x, query = take(x, asked), query.gather(2, _wide(asked[:, None], query))
        x = x + self.dropout1(attend(self.self_attn, query, own, mask))
        x = x if self.norm_first else self.norm1(x)
        normed = self.norm2(x) if self.norm_first else x
        attention, width = self.multihead_attn, self.multihead_attn.embed_dim
        query = F.linear(normed, attention.in_proj_weight[:width], attention.in_proj_bias[:width])
        query = _heads(query, attention.num_heads)
        x = x + self.dropout2(attend(attention, query, memory, memory_mask))
        return x if self.norm_first else self.norm2(x)

    def think(self, x: Tensor) -> Tensor:
        """The feed-forward part, position by position: x [..., d]."""
        normed = self.norm3(x) if self.norm_first else x
        inner = self.dropout(self.activation(self.linear1(normed)))
        x = x + self.dropout3(self.linear2(inner))
        return x if self.norm_first else self.norm3(x)


def attend(attention: nn.MultiheadAttention, query: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
    """softmax(q k / √D) v through the output projection: query [N, H, Q, D] -> [N, Q, H·D]."""
    plainly = query.requires_grad and query.device.type == "cpu"
    mix = _plain_attention if plainly else _fused_attention
    return attention.out_proj(mix(query, memory, mask).transpose(1, 2).flatten(2))


def _fused_attention(query: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(query, memory.keys, memory.values, attn_mask=mask)


def _plain_attention(query: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
    """The same by two matrix products: on the CPU the fused kernel's backward pass is six times slower in bfloat16."""
    n, heads, asked, width = query.shape
    keys, values = memory.keys.flatten(0, 1), memory.values.flatten(0, 1)
    bias, beta = query.new_zeros(()).expand(n * heads, asked, keys.shape[1]), 0
    if mask is not None:
        hidden = query.new_zeros(mask.shape).masked_fill(~mask, -torch.inf)
        bias, beta = hidden.expand(n, heads, asked, keys.shape[1]).flatten(0, 1), 1
    scores = torch.baddbmm(bias, query.flatten(0, 1), keys.transpose(1, 2), beta=beta, alpha=width**-0.5)
    return torch.bmm(scores.softmax(-1).to(values.dtype), values).unflatten(0, (n, heads))


def take(x: Tensor, positions: Tensor) -> Tensor:
    """x [N, T, d] at `positions` [N, K] -> [N, K, d]."""
    return x.gather(1, _wide(positions, x))


def _wide(positions: Tensor, x: Tensor) -> Tensor:
    """Positions with a last axis as wide as that of x, and x's other leading axes."""
    shape = (*x.shape[:-2], positions.shape[-1], x.shape[-1])
    return positions.unsqueeze(-1).expand(shape)


def _split(attention: nn.MultiheadAttention, x: Tensor) -> tuple[Tensor, KeysValues]:
    """Query and own keys and values from x [N, T, d], by one matrix product."""
    whole = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    query, keys, values = (_heads(part, attention.num_heads) for part in whole.chunk(3, -1))
    return query, KeysValues(keys, values)


def _heads(x: Tensor, heads: int) -> Tensor:
    """[N, T, H·D] -> [N, H, T, D]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _shape(config: ConditionalConfig) -> dict[str, Any]:
    return {
        "d_model": config.d_model,
        "nhead": config.heads,
        "dim_feedforward": config.feed_forward,
        "dropout": config.dropout,
        "activation": {"gelu": F.gelu, "relu": F.relu}[config.activation],
        "layer_norm_eps": config.layer_norm_eps,
        "batch_first": True,
        "norm_first": config.norm_first,
    }
