"""A causal architecture used as a masked LM: today's masked diffusion models, LLaDA and Dream, are built so.

    every token attends to every other one (a 4D attention mask without causality); a token of the vocabulary serves as
    the mask; with `shift` the prediction for position t stands at t − 1, as in the causal model that it began as

The output layer runs at the asked positions only, where it is found to be a function of single hidden states.
Sources: Nie et al. (2025), LLaDA (no shift); Ye et al. (2025), Dream, and Gong et al. (2025), DiffuLLaMA (shift).
"""

from __future__ import annotations

import copy
import hashlib
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from maskropolis.errors import InputError, ModelError
from maskropolis.models.huggingface.loading import Options, load
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.sequences import Sequences

PREFIX = "causal:"


class CausalAsMasked(HuggingFaceMaskedLM):
    """Wraps an `AutoModelForCausalLM`-like model and its tokenizer.

    `mask_token` is the id or the text of the mask, if the tokenizer does not name one. Raises `ModelError` if there is
    none, or if the model goes on ignoring the tokens to the right of a position.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        mask_token: int | str | None = None,
        shift: bool = False,
        name: str | None = None,
        format: str = "text",
    ) -> None:
        self.shift = shift
        self._head: Any = None
        super().__init__(model, _with_mask(tokenizer, mask_token, int(model.config.vocab_size)), name, format)
        self._head = self._output_layer()
        if not self._sees_right():
            raise ModelError(
                f"'{self.name}' ignores the tokens to the right of a position whatever its attention mask; "
                "expected an architecture that takes a 4D attention mask"
            )

    @classmethod
    def of_causal(
        cls, name: str, *, mask_token: int | str | None = None, shift: bool = False, **options: Any
    ) -> CausalAsMasked:
        """Load a hub name or local folder; `options` are those of `HuggingFaceMaskedLM.from_pretrained`."""
        chosen = Options(**options)
        if chosen.compile:
            raise ModelError("a causal model as a masked one is not compiled; leave out --compile")
        model, tokenizer, _ = load(str(name), chosen, AutoModelForCausalLM)
        made = cls(model, tokenizer, mask_token, shift, name=str(name), format=chosen.format)
        made.loaded_with = asdict(chosen)
        return made

    @classmethod
    def named(cls, specification: str, **options: Any) -> CausalAsMasked:
        """Load what `NAME[,mask=TOKEN][,shift]` says: a hub name or folder, the text or the id of the mask token, and
        that predictions stand one position to the left. Raises `InputError` where it is malformed."""
        name, *settings = specification.split(",")
        mask: int | str | None = None
        for setting in settings:
            key, _, value = setting.partition("=")
            if key == "mask" and value:
                mask = int(value) if value.isdecimal() else value
            elif setting != "shift":
                raise InputError(f"'{setting}' says nothing of a causal model; expected NAME[,mask=TOKEN][,shift]")
        if not name:
            raise InputError("a causal model needs a name; expected causal:NAME[,mask=TOKEN][,shift]")
        made = cls.of_causal(name, mask_token=mask, shift="shift" in settings, **options)
        made.name = f"{PREFIX}{specification}"
        return made

    @property
    def output_layer(self) -> str:
        return "asked positions" if self._head is not None else "all positions"

    def _forward(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """Logits [N, K, V] float32 at `positions` [N, K]."""
        where = (positions - 1).clamp(min=0) if self.shift else positions
        attention = self._attention(sequences.attention)
        if self._head is None:
            full = self.model(input_ids=sequences.tokens, attention_mask=attention, use_cache=False).logits
            return _at(full, where).float()
        hidden = self._hidden(sequences.tokens, attention)
        return self._head(_at(hidden, where)).float()

    def fingerprint(self) -> str:
        """SHA-256 of the weights, the mask token and the shift."""
        return hashlib.sha256(f"{self._fingerprint}|{self.mask_token}|{self.shift}".encode()).hexdigest()

    def _attention(self, attended: Tensor) -> Tensor:
        """[N, 1, T, T]: 0 where the key is a real token, else the lowest number; the same for every query."""
        lowest = torch.finfo(self.model.dtype).min
        bias = torch.zeros(attended.shape, dtype=self.model.dtype, device=attended.device)
        bias = bias.masked_fill(~attended, lowest)
        return bias[:, None, None, :].expand(-1, 1, attended.shape[1], -1)

    def _hidden(self, tokens: Tensor, attention: Tensor) -> Tensor:
        return self.model.base_model(input_ids=tokens, attention_mask=attention, use_cache=False)[0]

    def _split(self) -> None:
        """The division into body and head of masked architectures does not apply; see `_output_layer`."""
        return None

    @torch.inference_mode()
    def _output_layer(self) -> Any:
        """The output layer, if hidden states and it alone give the logits of the whole model; else None."""
        head = self.model.get_output_embeddings()
        if head is None or self.model.base_model is self.model:
            return None
        ids = self._probe()
        attention = self._attention(torch.ones_like(ids, dtype=torch.bool))
        full = self.model(input_ids=ids, attention_mask=attention, use_cache=False).logits
        try:
            ours = head(self._hidden(ids, attention))
        except (TypeError, AttributeError, RuntimeError, ValueError):
            return None
        tolerance = (1e-4 if self.model.dtype == torch.float32 else 5e-2) * max(1.0, float(full.abs().max()))
        same = ours.shape == full.shape and bool((ours - full).abs().max() <= tolerance)
        return head if same else None

    def _sees_right(self) -> bool:
        """Whether another last token changes the logits at the first position asked for."""
        ids = self._probe()
        other = ids.clone()
        other[0, -1] = next(i for i in self.allowed.nonzero()[:, 0].tolist() if i != int(ids[0, -1]))
        every, at = torch.ones_like(ids, dtype=torch.bool), torch.ones(1, 1, dtype=torch.long, device=ids.device)
        first, second = (self.logits(Sequences(tokens, every, every), at) for tokens in (ids, other))
        return bool((first - second).abs().max() > 0)


def _at(values: Tensor, positions: Tensor) -> Tensor:
    """[N, K, H] of values [N, T, H] at positions [N, K]."""
    return values.gather(1, positions.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def _with_mask(tokenizer: Any, mask_token: int | str | None, size: int) -> Any:
    """A copy of the tokenizer that names the mask token. Raises `ModelError` where there is no such token."""
    if mask_token is None:
        if tokenizer.mask_token_id is None:
            raise ModelError("the tokenizer names no mask token; give its id or text: causal:NAME,mask=TOKEN")
        return tokenizer
    known = tokenizer.get_vocab()
    text = mask_token if isinstance(mask_token, str) else tokenizer.convert_ids_to_tokens(mask_token)
    if text not in known or known[text] >= size:
        raise ModelError(f"the mask token {mask_token!r} is not a token of the model's vocabulary of {size}")
    named = copy.deepcopy(tokenizer)
    named.add_special_tokens({"mask_token": text})  # it exists, so no id is added; now it is split off whole
    return named
