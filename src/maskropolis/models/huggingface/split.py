"""Divides a transformers masked LM into a body (tokens to hidden states) and a head (hidden states to logits).

The head of every `AutoModelForMaskedLM` works position by position, so it need only see the positions that are asked
for. No list of architectures is kept: the head is the model itself with its body replaced by a module that hands over
given hidden states. `check` compares the two routes once, so that an architecture for which this does not hold is
noticed and the full forward pass used instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput


class _Given(nn.Module):
    """Stands in for the body: returns the hidden states it was given, and lends the body's other attributes."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "_body", body)
        self.hidden: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(object.__getattribute__(self, "_body"), name)

    def forward(self, *args: Any, **kwargs: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.hidden)


class BodyAndHead:
    """`body(input_ids, attention_mask) -> [N, T, H]` and `head(hidden [N, K, H]) -> [N, K, V]` of one masked LM.

    The weights are shared with the model, not copied; gradients flow through both parts.
    Raises `ValueError` if the model has no separate body (`model.base_model is model`).
    """

    def __init__(self, model: nn.Module) -> None:
        prefix = getattr(model, "base_model_prefix", "")
        body = getattr(model, prefix, None) if prefix else None
        if not isinstance(body, nn.Module) or prefix not in model._modules:
            raise ValueError(f"{type(model).__name__} has no body of its own under '{prefix}'")
        self._given = _Given(body)
        self._head = copy.copy(model)
        self._head._modules = {**model._modules, prefix: self._given}
        self._body = body

    def body(self, input_ids: Tensor | None, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Hidden states [N, T, H] of the last layer."""
        hidden = self._body(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)[0]
        return hidden if input_ids is None else hidden[:, : input_ids.shape[1]]

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [N, K, V] for hidden states [N, K, H], wherever in the sequence they come from."""
        self._given.hidden = hidden
        try:
            dummy = torch.zeros(hidden.shape[:2], dtype=torch.long, device=hidden.device)
            return self._head(input_ids=dummy, return_dict=True).logits
        finally:
            self._given.hidden = None

    def use(self, change: Callable[[nn.Module], Any]) -> None:
        """Run `change(body)` in the place of the body."""
        self._body = change(self._body)

    def logits(self, input_ids: Tensor, attention_mask: Tensor | None, positions: Tensor) -> Tensor:
        """Logits [N, K, V] at `positions` [N, K]: the output layer runs on N·K hidden states, not on N·T."""
        hidden = self.body(input_ids, attention_mask)
        at = positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
        return self.head(hidden.gather(1, at))


@torch.inference_mode()
def check(model: nn.Module, parts: BodyAndHead, input_ids: Tensor, tolerance: float = 1e-4) -> bool:
    """Whether body + head at some positions equals the full model's logits there; `input_ids` is [1, T], T ≥ 3."""
    full = model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids)).logits
    some = torch.tensor([[1, input_ids.shape[1] - 1]], device=input_ids.device)
    try:
        ours = parts.logits(input_ids, torch.ones_like(input_ids), some)
    except (TypeError, AttributeError, RuntimeError, ValueError, IndexError):
        return False
    if ours.shape != (1, 2, full.shape[-1]):
        return False
    scale = max(1.0, float(full.abs().max()))
    return bool((ours - full[:, some[0]]).abs().max() <= tolerance * scale)
