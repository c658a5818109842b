"""The Mask-Predict network written plainly after the paper and the authors' description, with fairseq's weight names.

Independent of the package: matrices and softmax, one sentence at a time, no masks for padding.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch

PAD, EOS, MASK = 1, 2, 4


def weights(symbols: int, width: int, inner: int, layers: int, longest: int, pre_norm: bool, seed: int = 0) -> dict:
    """Random weights under the names of a checkpoint."""
    torch.manual_seed(seed)
    made: dict[str, Any] = {"encoder.version": torch.tensor([2.0]), "decoder.version": torch.tensor([2.0])}

    def new(name: str, *shape: int) -> None:
        made[name] = 0.3 * torch.randn(*shape)

    def norm(name: str) -> None:
        made[f"{name}.gamma"], made[f"{name}.beta"] = 1 + 0.2 * torch.randn(width), 0.2 * torch.randn(width)

    def attention(name: str) -> None:
        new(f"{name}.in_proj_weight", 3 * width, width)
        new(f"{name}.in_proj_bias", 3 * width)
        new(f"{name}.out_proj.weight", width, width)
        new(f"{name}.out_proj.bias", width)

    def feed_forward(name: str) -> None:
        new(f"{name}.fc1.weight", inner, width)
        new(f"{name}.fc1.bias", inner)
        new(f"{name}.fc2.weight", width, inner)
        new(f"{name}.fc2.bias", width)

    new("encoder.embed_tokens.weight", symbols, width)
    made["decoder.embed_tokens.weight"] = made["encoder.embed_tokens.weight"]
    for side in ("encoder", "decoder"):
        new(f"{side}.embed_positions.weight", longest + PAD + 1, width)
        if pre_norm:
            norm(f"{side}.layer_norm")
    new("encoder.embed_lengths.weight", longest, width)
    for i in range(layers):
        attention(f"encoder.layers.{i}.self_attn")
        feed_forward(f"encoder.layers.{i}")
        norm(f"encoder.layers.{i}.layer_norms.0")
        norm(f"encoder.layers.{i}.layer_norms.1")
        attention(f"decoder.layers.{i}.self_attn")
        attention(f"decoder.layers.{i}.encoder_attn")
        feed_forward(f"decoder.layers.{i}")
        for name in ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"):
            norm(f"decoder.layers.{i}.{name}")
    return made


def write(folder: Path, made: dict, heads: int, words: list[str]) -> Path:
    """A checkpoint and its dictionaries as the fork leaves them."""
    arguments = argparse.Namespace(arch="bert_transformer_seq2seq", dropout=0.3, encoder_attention_heads=heads,
                                   decoder_attention_heads=heads, share_all_embeddings=True)  # fmt: skip
    torch.save({"args": arguments, "model": made, "extra_state": {"epoch": 3}}, folder / "checkpoint_best.pt")
    for language in ("de", "en"):
        lines = [f"{word} {9 - i}" for i, word in enumerate(words)]
        (folder / f"dict.{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "checkpoint_best.pt"


class Reference:
    """Logits of all target positions, and log-probabilities of the lengths."""

    def __init__(self, made: dict, heads: int, layers: int) -> None:
        self.w, self.heads, self.layers = made, heads, layers
        self.pre_norm = "encoder.layer_norm.gamma" in made

    def __call__(self, source: list[int], target: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        states, lengths = self.encode(source)
        x = self._embed("decoder", target)
        for i in range(self.layers):
            at = f"decoder.layers.{i}"
            x = self._residual(x, f"{at}.self_attn_layer_norm", lambda y, at=at: self._attend(f"{at}.self_attn", y, y))
            x = self._residual(
                x, f"{at}.encoder_attn_layer_norm", lambda y, at=at: self._attend(f"{at}.encoder_attn", y, states)
            )
            x = self._residual(x, f"{at}.final_layer_norm", lambda y, at=at: self._feed_forward(at, y))
        if self.pre_norm:
            x = self._norm("decoder.layer_norm", x)
        return x @ self.w["decoder.embed_tokens.weight"].T, lengths

    def encode(self, source: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.cat([self.w["encoder.embed_lengths.weight"][:1], self._embed("encoder", source)])
        for i in range(self.layers):
            at = f"encoder.layers.{i}"
            x = self._residual(x, f"{at}.layer_norms.0", lambda y, at=at: self._attend(f"{at}.self_attn", y, y))
            x = self._residual(x, f"{at}.layer_norms.1", lambda y, at=at: self._feed_forward(at, y))
        if self.pre_norm:
            x = self._norm("encoder.layer_norm", x)
        scores = x[0] @ self.w["encoder.embed_lengths.weight"].T
        scores[0] = -math.inf
        return x[1:], scores.log_softmax(-1)

    def _embed(self, side: str, tokens: list[int]) -> torch.Tensor:
        places = torch.arange(len(tokens)) + PAD + 1
        return self.w[f"{side}.embed_tokens.weight"][tokens] + self.w[f"{side}.embed_positions.weight"][places]

    def _residual(self, x: torch.Tensor, norm: str, inner: Any) -> torch.Tensor:
        if self.pre_norm:
            return x + inner(self._norm(norm, x))
        return self._norm(norm, x + inner(x))

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return (
            self.w[f"{name}.gamma"] * centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt()
            + self.w[f"{name}.beta"]
        )

    def _attend(self, name: str, queries: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        width = queries.shape[1]
        weight, bias = self.w[f"{name}.in_proj_weight"], self.w[f"{name}.in_proj_bias"]
        q = queries @ weight[:width].T + bias[:width]
        k = memory @ weight[width : 2 * width].T + bias[width : 2 * width]
        v = memory @ weight[2 * width :].T + bias[2 * width :]
        size = width // self.heads
        parts = []
        for h in range(self.heads):
            at = slice(h * size, (h + 1) * size)
            parts.append((q[:, at] @ k[:, at].T / math.sqrt(size)).softmax(-1) @ v[:, at])
        return torch.cat(parts, 1) @ self.w[f"{name}.out_proj.weight"].T + self.w[f"{name}.out_proj.bias"]

    def _feed_forward(self, at: str, x: torch.Tensor) -> torch.Tensor:
        h = x @ self.w[f"{at}.fc1.weight"].T + self.w[f"{at}.fc1.bias"]
        h = h * 0.5 * (1 + torch.erf(h / math.sqrt(2)))
        return h @ self.w[f"{at}.fc2.weight"].T + self.w[f"{at}.fc2.bias"]
