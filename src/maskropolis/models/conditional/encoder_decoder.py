"""The encoder–decoder as a conditional model, and bound to sources as a masked LM."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.conditional.network import ConditionalNetwork, Memory
from maskropolis.models.conditional.protocol import framed_rows, free_tokens
from maskropolis.models.conditional.text import TranslationCodec
from maskropolis.models.forward.cpu_products import products_for
from maskropolis.models.forward.differentiable import Term, slopes_through, vectors_of
from maskropolis.models.protocol import Budget
from maskropolis.sequences import Sequences


class ConditionalMaskedLM:
    """A `ConditionalNetwork` with its tokenizer. See `maskropolis.models.conditional.protocol.Conditional`."""

    def __init__(self, network: ConditionalNetwork, tokenizer: Any, name: str = "conditional") -> None:
        self.network, self.name, self.config = network.eval(), name, network.config
        self.codec = TranslationCodec(
            tokenizer, self.config.max_source_positions, self.config.longest_target, self.config.continuation
        )
        self.products = products_for(network)
        self.budget = Budget(tokens=4096 if self.device.type == "cpu" else 65536, logits=1 << 24)
        self.source_ids, self.target_ids = self.codec.source_ids, self.codec.target_ids
        self.text, self.unknown = self.codec.text, self.codec.unknown

    @property
    def device(self) -> torch.device:
        return self.network.embed.weight.device

    @cached_property
    def allowed(self) -> Tensor:
        return self.codec.allowed(self.config.vocab_size).to(self.device)

    def bind(self, sources: Sequence[Sequence[int]]) -> BoundMaskedLM:
        """The masked LM of targets for these sources, each encoded once, here."""
        return BoundMaskedLM(self, sources)

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


class BoundMaskedLM:
    """p_t(y_t | y_∖t, x_s), s = `Sequences.source`. Rows of one source share its encoding, keys and values.

    With a single source, `Sequences.source` may be None.
    """

    padding_safe = True

    def __init__(self, model: ConditionalMaskedLM, sources: Sequence[Sequence[int]]) -> None:
        if not sources:
            raise InputError("there are no sources to translate; expected at least one")
        self._model, self._network = model, model.network
        self.name, self.budget, self.mask_token = model.name, model.budget, model.config.mask_token_id
        self._end = model.config.eos_token_id
        self.max_length: int | None = model.config.max_target_positions
        self.longest = model.config.longest_target
        self.end_counted = int(model.config.end == "predicted")
        self.sources = [list(source) for source in sources]
        self._memory = self._encode()

    @torch.inference_mode()
    def _encode(self) -> Memory:
        """Each source once, in batches of similar length."""
        order = sorted(range(len(self.sources)), key=lambda i: -len(self.sources[i]))
        parts, start = [], 0
        while start < len(order):
            stop = start + max(1, self.budget.tokens // (1 + len(self.sources[order[start]])))
            some = [self.sources[i] for i in order[start:stop]]
            padded = Sequences.from_lists(some, [[False] * len(source) for source in some]).to(self.device)
            with self._model.products or nullcontext():
                parts.append(self._network.encode(padded.tokens, padded.attention))
            start = stop
        place = torch.tensor(order, device=self.device).argsort()
        return Memory.joined(parts).rows(place)

    @property
    def vocabulary_size(self) -> int:
        return int(self._model.config.vocab_size)

    @property
    def allowed(self) -> Tensor:
        return self._model.allowed

    @cached_property
    def decodable(self) -> Tensor:
        if self._model.config.end != "predicted":
            return self.allowed
        tokens = self.allowed.clone()
        tokens[self._end] = True
        return tokens

    @property
    def device(self) -> torch.device:
        return self._model.device

    @torch.inference_mode()
    def logits(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """Logits [N, K, V] float32 at `positions` [N, K]."""
        with self._model.products or nullcontext():
            return self._decoded(sequences, positions)

    @cached_property
    def input_vectors(self) -> Tensor:
        """See `DifferentiableMaskedLM`."""
        return vectors_of(self._network.embed, self.vocabulary_size, self.device)

    def logits_and_slopes(
        self, sequences: Sequences, positions: Tensor, tokens: Tensor, term: Term
    ) -> tuple[Tensor, Tensor]:
        """See `DifferentiableMaskedLM`."""
        return slopes_through(self._network.embed, self._decoded, sequences, positions, tokens, term)

    def _decoded(self, sequences: Sequences, positions: Tensor) -> Tensor:
        source = sequences.source
        if source is None:
            source = torch.zeros(len(sequences), dtype=torch.long, device=self.device)
        memory = self._memory.rows(source)
        return self._network.decode(sequences.tokens, sequences.attention, memory, positions).float()

    def predicted_lengths(self, beam: int) -> list[list[int]]:
        """See `Bound`. A length that is predicted together with the end token counts it, and is at least 2."""
        most = self._model.config.max_target_positions - (self._model.config.end == "fixed")
        found = self._memory.lengths[:, : most + 1].topk(min(beam, most), dim=1).indices
        least = 2 if self._model.config.end == "predicted" else 1
        return found.clamp(min=least).tolist()

    def length_scores(self, sources: Sequence[int], lengths: Sequence[int]) -> list[float]:
        """See `Bound`."""
        scores = self._memory.lengths.double().log_softmax(-1)
        longest = scores.shape[1] - 1  # a given hypothesis of full length and its end token are one beyond
        wanted = torch.tensor(list(lengths), device=self.device).clamp(max=longest)
        found: list[float] = scores[torch.tensor(list(sources), device=self.device), wanted].tolist()
        return found

    def blank(self, sources: Sequence[int], lengths: Sequence[int]) -> Sequences:
        """See `Bound`."""
        tail = [self._end] if self._model.config.end == "fixed" else []
        return self._framed(sources, [[self.mask_token] * length for length in lengths], tail)

    def rows(self, sources: Sequence[int], targets: Sequence[Sequence[int]]) -> Sequences:
        """See `Bound`."""
        return self._framed(sources, targets, [] if self._model.config.end == "none" else [self._end])

    def targets(self, sequences: Sequences) -> list[list[int]]:
        """See `Bound`."""
        return free_tokens(sequences, self._end)

    def _framed(self, sources: Sequence[int], targets: Sequence[Sequence[int]], tail: list[int]) -> Sequences:
        padding = self._model.config.pad_token_id
        return framed_rows([[]] * len(targets), targets, tail, sources, padding).to(self.device)

    def fingerprint(self) -> str:
        """SHA-256 of weights and sources."""
        digest = hashlib.sha256(self._model.fingerprint().encode())
        digest.update(repr(self.sources).encode())
        return digest.hexdigest()
