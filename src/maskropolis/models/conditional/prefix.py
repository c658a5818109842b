"""Any plain masked LM as a conditional model: the source and a separator are fixed, the target after them is free."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.conditional.protocol import framed_rows, free_tokens
from maskropolis.models.forward.differentiable import Term
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.text.codec import require_text
from maskropolis.sequences import Sequences


class PrefixConditional:
    """Rows [CLS] source separator target [SEP] of a plain masked LM. See `models.conditional.protocol.Conditional`.

    `separator`: text between source and target, e.g. " = " or the model's own "[SEP]". A plain masked LM predicts no
    length: the target is taken to have `length_ratio` times the tokens of the source, and lengths beside it.
    """

    def __init__(self, model: HuggingFaceMaskedLM, separator: str = "", length_ratio: float = 1.0) -> None:
        if not length_ratio > 0:
            raise InputError(f"the length ratio is {length_ratio:g}; expected a number above 0")
        self.model, self.name, self.budget, self.length_ratio = model, model.name, model.budget, length_ratio
        self._tokenizer = model.codec.tokenizer
        between = self._tokens(separator) if separator else list(model.codec.frame[1])
        self._before, self._between, self._after = model.codec.frame[0], between, model.codec.frame[1]

    @property
    def device(self) -> torch.device:
        return self.model.device

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def source_ids(self, text: str, where: str) -> list[int]:
        """Tokens of a source, which must leave room for a target of at least one token."""
        require_text(text, where)
        ids = self._tokens(text)
        self.model.codec.require_fits(len(self.head(ids)) + len(self._after) + 1, where, text)
        return ids

    def target_ids(self, text: str, where: str) -> list[int]:
        require_text(text, where)
        ids = self._tokens(text)
        self.model.codec.require_fits(len(self.head([])) + len(ids) + len(self._after), where, text)
        return ids

    def text(self, ids: Sequence[int]) -> str:
        shown: str = self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        return shown.strip()

    def unknown(self, text: str) -> list[str]:
        """The parts of a text that become the unknown token; with a tokenizer without offsets, the token itself."""
        unknown = self.model.codec.unknown
        if unknown is None or unknown not in self._tokens(text):
            return []
        if not getattr(self._tokenizer, "is_fast", False):
            return [self._tokenizer.unk_token]
        encoded = self._tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return list(dict.fromkeys(text[start:stop] for token, (start, stop) in pairs if token == unknown))

    def head(self, source: Sequence[int]) -> list[int]:
        """What stands before the target."""
        return [*self._before, *source, *self._between]

    @property
    def tail(self) -> list[int]:
        """What stands after the target."""
        return list(self._after)

    def bind(self, sources: Sequence[Sequence[int]]) -> PrefixBound:
        return PrefixBound(self, sources)

    def fingerprint(self) -> str:
        """SHA-256 of the weights and of what stands between source and target."""
        how = f"{self.model.fingerprint()} {self._between} {self.length_ratio}"
        return hashlib.sha256(how.encode()).hexdigest()


def _distance(middle: int, length: int) -> tuple[int, int]:
    return abs(length - middle), length


class PrefixBound:
    """The plain masked LM, with rows that begin with their source. See `models.conditional.protocol.Bound`."""

    def __init__(self, conditional: PrefixConditional, sources: Sequence[Sequence[int]]) -> None:
        if not sources:
            raise InputError("there are no sources to translate; expected at least one")
        self._conditional, self._model = conditional, conditional.model
        self.sources = [list(source) for source in sources]
        self.name, self.budget, self.mask_token = self._model.name, self._model.budget, self._model.mask_token
        self.max_length, self.padding_safe = self._model.max_length, self._model.padding_safe
        heads = [len(conditional.head(source)) for source in self.sources]
        room = 1 << 20 if self.max_length is None else self.max_length - len(conditional.tail)
        self._room = [room - head for head in heads]
        self.longest = min(self._room)
        self.end_counted = 0

    @property
    def vocabulary_size(self) -> int:
        return self._model.vocabulary_size

    @property
    def allowed(self) -> Tensor:
        return self._model.allowed

    @property
    def decodable(self) -> Tensor:
        return self._model.allowed

    @property
    def device(self) -> torch.device:
        return self._model.device

    def logits(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """Those of the plain model: the source is in the row."""
        return self._model.logits(sequences, positions)

    @property
    def input_vectors(self) -> Tensor:
        """Those of the plain model."""
        return self._model.input_vectors

    def logits_and_slopes(
        self, sequences: Sequences, positions: Tensor, tokens: Tensor, term: Term
    ) -> tuple[Tensor, Tensor]:
        """Those of the plain model."""
        return self._model.logits_and_slopes(sequences, positions, tokens, term)

    def predicted_lengths(self, beam: int) -> list[list[int]]:
        """Lengths around the expected one, nearest first."""
        found = []
        for source, room in zip(self.sources, self._room, strict=True):
            middle = max(1, round(self._conditional.length_ratio * len(source)))
            near = sorted(range(1, middle + beam + 1), key=partial(_distance, middle))
            found.append([min(n, room) for n in near[:beam]])
        return found

    def length_scores(self, sources: Sequence[int], lengths: Sequence[int]) -> list[float]:
        return [0.0] * len(lengths)

    def blank(self, sources: Sequence[int], lengths: Sequence[int]) -> Sequences:
        return self.rows(sources, [[self.mask_token] * length for length in lengths])

    def rows(self, sources: Sequence[int], targets: Sequence[Sequence[int]]) -> Sequences:
        for source, target in zip(sources, targets, strict=True):
            if len(target) > self._room[source]:
                raise InputError(
                    f"a translation of {len(target)} tokens does not fit behind its source of "
                    f"{len(self.sources[source])}; the model has room for {self._room[source]} more: shorten either"
                )
        heads = [self._conditional.head(self.sources[source]) for source in sources]
        padding = self._model.codec.padding
        return framed_rows(heads, targets, self._conditional.tail, sources, padding).to(self.device)

    def targets(self, sequences: Sequences) -> list[list[int]]:
        return free_tokens(sequences)

    def fingerprint(self) -> str:
        return hashlib.sha256((self._model.fingerprint() + repr(self.sources)).encode()).hexdigest()
