"""An encoder–decoder conditional masked LM: p_t(y_t | y_∖t, x) for a source x, and p(N | x) for the target's length.

The encoder reads a length token and the source; the length token's last state, against the embeddings of the lengths,
gives the distribution of the length. The decoder sees the whole target in both directions and the encoded source.
Embeddings are shared by source, target and output layer. Ghazvininejad et al. (2019), section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from maskropolis.models.conditional.config import ConditionalConfig
from maskropolis.models.conditional.dropout import ByteDropout
from maskropolis.models.conditional.layers import DecoderLayer, EncoderLayer, KeysValues


@dataclass(frozen=True, eq=False)
class Memory:
    """What the decoder needs of B sources.

    Attributes:
        layers: keys and values [B, H, S, D] of each decoder layer's cross-attention.
        attention: [B, S] bool, True at source tokens.
        lengths: [B, L] logits of the target's length; −inf at 0.
    """

    layers: list[KeysValues]
    attention: Tensor
    lengths: Tensor

    def rows(self, index: Tensor) -> Memory:
        """The memory of N rows whose sources are `index` [N]: gathered, not computed again, without common padding."""
        attention = self.attention[index]
        width = int(attention.sum(1).max()) if len(index) else 0
        layers = [KeysValues(keys[:, :, :width][index], values[:, :, :width][index]) for keys, values in self.layers]
        return Memory(layers, attention[:, :width], self.lengths[index])

    @classmethod
    def joined(cls, parts: Sequence[Memory]) -> Memory:
        """The memories of several batches of sources as one, padded to the longest source."""
        width = max(part.attention.shape[1] for part in parts)

        def wide(tensor: Tensor, axis: int) -> Tensor:
            return F.pad(tensor, (0, 0) * (tensor.dim() - 1 - axis) + (0, width - tensor.shape[axis]))

        depth = range(len(parts[0].layers))
        layers = [
            KeysValues(*(torch.cat([wide(part.layers[i][which], 2) for part in parts]) for which in (0, 1)))
            for i in depth
        ]
        return cls(layers, torch.cat([wide(p.attention, 1) for p in parts]), torch.cat([p.lengths for p in parts]))


class ConditionalNetwork(PreTrainedModel):
    """See the module. `forward` is what training needs; decoding uses `encode` once and `decode` often."""

    config_class = ConditionalConfig
    base_model_prefix = ""
    main_input_name = "source"
    _supports_sdpa = True

    def __init__(self, config: ConditionalConfig) -> None:
        super().__init__(config.check())
        width, offset = config.d_model, config.position_offset
        self.embed = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.source_positions = nn.Embedding(config.max_source_positions + offset, width)
        self.target_positions = nn.Embedding(config.max_target_positions + offset, width)
        self.lengths = nn.Embedding(config.max_target_positions, width)
        self.dropout = ByteDropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder_norm = nn.LayerNorm(width, config.layer_norm_eps) if config.norm_first else nn.Identity()
        self.decoder_norm = nn.LayerNorm(width, config.layer_norm_eps) if config.norm_first else nn.Identity()
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Normal with deviation 0.02 for embeddings, Glorot uniform for matrices."""
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.MultiheadAttention):
            nn.init.xavier_uniform_(module.in_proj_weight)
            nn.init.zeros_(module.in_proj_bias)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, ConditionalNetwork) and module.output_bias is not None:
            nn.init.zeros_(module.output_bias)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def encode(self, source: Tensor, attention: Tensor) -> Memory:
        """Sources [B, S] with `attention` [B, S] bool -> their memory."""
        x = self.embed(source) + self._positions(self.source_positions, source.shape[1])
        x = self.dropout(torch.cat([self.lengths.weight[:1].expand(len(x), 1, -1), x], 1))
        seen = F.pad(attention, (1, 0), value=True)
        mask = keys_mask(seen)
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        lengths = F.linear(x[:, 0], self.lengths.weight).float()
        lengths = torch.cat([torch.full_like(lengths[:, :1], -torch.inf), lengths[:, 1:]], 1)
        return Memory([layer.cross(x[:, 1:]) for layer in self._decoder_layers], attention, lengths)

    def decode(self, target: Tensor, attention: Tensor, memory: Memory, positions: Tensor) -> Tensor:
        """Logits [N, K, V] at `positions` [N, K] of targets [N, T]; `memory` has N rows, see `Memory.rows`.

        The last layer and the output layer run at the asked positions only.
        """
        x, mask, memory_mask = self._begin(target, attention, memory)
        *before, last = self._decoder_layers
        for layer, cross in zip(before, memory.layers, strict=False):
            x = layer.think(layer.mix(x, mask, cross, memory_mask, None))
        x = last.think(last.mix(x, mask, memory.layers[-1], memory_mask, positions))
        return self.project(self.decoder_norm(x))

    def forward(
        self,
        source: Tensor,
        source_attention: Tensor,
        target: Tensor,
        target_attention: Tensor,
        chosen: Tensor,
        **_: Any,
    ) -> tuple[Tensor, Tensor]:
        """(hidden states [M, d] at the M places where `chosen` [N, T] is True, in row order; length logits [B, L]).

        One target a source, or C: N = C·B targets for B sources, all sources once, then all again. `project` turns
        hidden states into logits.
        """
        memory = self.encode(source, source_attention)
        if len(target) > len(source):
            copies = len(target) // len(source)
            memory = memory.rows(torch.arange(len(source), device=source.device).repeat(copies))
        x, mask, memory_mask = self._begin(target, target_attention, memory)
        *before, last = self._decoder_layers
        for layer, cross in zip(before, memory.layers, strict=False):
            x = layer.think(layer.mix(x, mask, cross, memory_mask, None))
        x = last.mix(x, mask, memory.layers[-1], memory_mask, None)[chosen]
        return self.decoder_norm(last.think(x)), memory.lengths[: len(source)]

    def project(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of hidden states [..., d], by the embeddings."""
        return F.linear(hidden, self.embed.weight, self.output_bias)

    @property
    def _decoder_layers(self) -> list[DecoderLayer]:
        return cast("list[DecoderLayer]", list(self.decoder))

    def _begin(self, target: Tensor, attention: Tensor, memory: Memory) -> tuple[Tensor, Tensor | None, Tensor | None]:
        x = self.embed(target) + self._positions(self.target_positions, target.shape[1])
        return self.dropout(x), keys_mask(attention), keys_mask(memory.attention)

    def _positions(self, table: nn.Embedding, width: int) -> Tensor:
        first = self.config.position_offset
        return table.weight[first : first + width]


def keys_mask(attention: Tensor) -> Tensor | None:
    """[N, 1, 1, T] bool for the attention's scores; None where every key of every row may be seen."""
    return None if bool(attention.all()) else attention[:, None, None, :]
