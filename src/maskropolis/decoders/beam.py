"""Greedy and beam search of an autoregressive encoder–decoder, by `generate` of transformers: the usual baseline."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from maskropolis.errors import InputError, ModelError, unknown_name
from maskropolis.models.conditional.text import TranslationCodec, require_fast
from maskropolis.models.huggingface.loading import DTYPES, find_device
from maskropolis.models.huggingface.pretrained import network_from, own_refusal, tokenizer_from
from maskropolis.models.huggingface.quiet import quiet
from maskropolis.models.protocol import Budget
from maskropolis.sequences import Sequences

MOST_TOKENS = 512
"""Of a source or a target, where a model has no positions that could run out."""


class AutoregressiveTranslator:
    """A `transformers` encoder–decoder with its tokenizer. `beam` 1 is greedy."""

    def __init__(self, network: Any, tokenizer: Any, name: str = "autoregressive", beam: int = 5) -> None:
        if beam < 1:
            raise InputError(f"a beam of {beam} is too narrow; expected at least 1")
        self.network, self.name, self.beam = network.eval(), name, beam
        longest = int(getattr(network.config, "max_position_embeddings", None) or MOST_TOKENS)
        self.codec = TranslationCodec(tokenizer, longest, longest - 2)
        self.budget = Budget(tokens=4096 if self.device.type == "cpu" else 65536)
        self.source_ids, self.target_ids = self.codec.source_ids, self.codec.target_ids
        self.text, self.unknown = self.codec.text, self.codec.unknown

    @property
    def device(self) -> torch.device:
        return torch.device(self.network.device)

    @torch.inference_mode()
    def translate(self, sources: Sequence[Sequence[int]]) -> list[list[tuple[list[int], float]]]:
        """For each source its translations, best first, each with its mean log-probability, end token included."""
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        found: list[list[tuple[list[int], float]]] = [[] for _ in sources]
        start = 0
        while start < len(order):
            widest = len(sources[order[start]])
            stop = start + max(1, self.budget.tokens // (widest * self.beam))
            some = order[start:stop]
            for i, translations in zip(some, self._batch([sources[i] for i in some]), strict=True):
                found[i] = translations
            start = stop
        return found

    def _batch(self, sources: list[Sequence[int]]) -> list[list[tuple[list[int], float]]]:
        config = self.network.config
        padding = config.pad_token_id
        padded = Sequences.from_lists(sources, [[False] * len(s) for s in sources], padding).to(self.device)
        given = {"input_ids": padded.tokens, "attention_mask": padded.attention.long()}
        found = self.network.generate(
            **given, num_beams=self.beam, do_sample=False, num_return_sequences=1,
            max_new_tokens=self.codec.longest_target,  # the same for all: a limit by the batch would show in answers
        )  # fmt: skip
        values = self._scores(given, found).tolist()
        hidden = {padding, config.bos_token_id, config.eos_token_id, config.decoder_start_token_id}
        return [
            [([token for token in row if token not in hidden], value)]
            for row, value in zip(found.tolist(), values, strict=True)
        ]

    def _scores(self, given: dict[str, Tensor], found: Tensor) -> Tensor:
        """[N] mean log-probability of the tokens of `found` [N, T] behind the first, up to the first end token."""
        logits = self.network(**given, decoder_input_ids=found[:, :-1], use_cache=False).logits
        following = found[:, 1:]
        ends = following == self.network.config.eos_token_id
        written = ends.cumsum(1) - ends.long() == 0  # `generate` may fill up with end tokens
        log_p = logits.gather(2, following[..., None])[..., 0] - logits.logsumexp(2)
        return (log_p * written).sum(1) / written.sum(1)

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for key, tensor in sorted(self.network.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 of the weights."""
        return self._fingerprint

    def signature(self) -> str:
        return f"decoder:{'greedy' if self.beam == 1 else f'beam({self.beam})'}"


def load_autoregressive(
    name: str, beam: int = 5, device: str = "auto", dtype: str = "float32", trust_remote_code: bool = False
) -> AutoregressiveTranslator:
    """The encoder–decoder saved in the folder `name`. Raises `ModelError`."""
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    where = find_device(device)
    try:
        with quiet():
            network: Any = network_from(
                AutoModelForSeq2SeqLM, name, trust=trust_remote_code, dtype=DTYPES[dtype], use_safetensors=True
            )
            tokenizer = tokenizer_from(name, trust=trust_remote_code)
    except Exception as error:
        refused = own_refusal(name, error)
        if refused is not None:
            raise refused from None
        raise ModelError(f"cannot load '{name}': {' '.join(str(error).split())[:300]}") from None
    require_fast(tokenizer, name)
    return AutoregressiveTranslator(network.to(where), tokenizer, name, beam)
