"""The judge: log-likelihood and perplexity of texts under a causal language model that did not write them.

    log p(x)  = Σ_{t=1..T} log p(x_t | x_0, x_1 … x_{t−1}),      x_0 the start token, never scored itself
    perplexity of N texts = exp(−Σ log p(x) / Σ T);  per word:    exp(−Σ log p(x) / Σ words)

T counts the tokens of the text; padding and special tokens that the tokenizer adds are never counted, nor is an end of
text predicted. Words are what white space separates, so that judges of different vocabularies can be compared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskropolis.errors import InputError, NumericalError
from maskropolis.evaluation.judging.loading import load_causal
from maskropolis.models.huggingface.loading import DTYPES, Options
from maskropolis.models.text.codec import shorten

SEPARATOR = "<|endoftext|>"
"""What stands between documents in the training text of GPT-2 and its many descendants."""

LOGITS = 1 << 26
"""Logits in one forward pass, by default: 256 MiB in float32."""

_CHUNK = 16
"""Texts are sorted together until they fill this many forward passes: room for sorting, bounded memory."""


@dataclass(frozen=True)
class Judgement:
    """What the judge says of one text of T tokens.

    Attributes:
        text: the text.
        log_probabilities: [T] log p(x_t | before), in nats.
        words: number of words, split at white space.
    """

    text: str
    log_probabilities: tuple[float, ...]
    words: int

    @property
    def tokens(self) -> int:
        """Number T of tokens scored."""
        return len(self.log_probabilities)

    @property
    def log_likelihood(self) -> float:
        """log p(x), in nats."""
        return math.fsum(self.log_probabilities)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood of a token."""
        return perplexity([self])

    @property
    def word_perplexity(self) -> float:
        """exp of the negative log-likelihood for each word."""
        return perplexity([self], per_word=True)


def perplexity(judgements: Iterable[Judgement], per_word: bool = False) -> float:
    """Of all texts together: every token (or word) weighs the same. Raises `InputError` if there is none."""
    found = list(judgements)
    units = sum(one.words if per_word else one.tokens for one in found)
    if not units:
        raise InputError("there are no texts to take the perplexity of; expected at least one")
    mean = -math.fsum(one.log_likelihood for one in found) / units
    return math.exp(mean) if mean < 700 else math.inf


@dataclass(frozen=True, eq=False)
class Judge:
    """A causal language model with its tokenizer.

    `start` is the id of the token that the first one of a text is conditioned on. None: there is no such token, and the
    first token of every text is given, not scored. `token_budget` is the number of token positions in a forward pass,
    padding included; it changes speed and memory, never a value (beyond the rounding of the forward pass).
    """

    name: str
    model: Any
    tokenizer: Any
    start: int | None
    token_budget: int
    loaded_with: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, name: str, *, start: str | None = "auto", token_budget: int | None = None, **options: Any) -> Judge:
        """A causal model by folder, hub name or GGUF file (`….gguf`, which needs the extra `gguf`).

        `start` is `auto`, the text of a token, or None for none. `auto` takes the first of these that there is: what
        the tokenizer itself puts before a text; `<|endoftext|>`, which separates documents in the training text of
        GPT-2 and its descendants; the BOS token; the EOS token; none.
        `options`: tokenizer, device, dtype, allow_pickle, trust_remote_code, revision. Raises `ModelError`; raises
        `InputError` for a budget below 1 or a start that is not one token.
        """
        chosen = Options(**options)
        if token_budget is not None and token_budget < 1:
            raise InputError(f"a token budget of {token_budget} is too small; expected at least 1")
        model, tokenizer = load_causal(str(name), chosen)
        budget = token_budget or max(1, LOGITS // int(model.config.vocab_size))
        return cls(str(name), model, tokenizer, start_token(tokenizer, start), budget, asdict(chosen))

    @cached_property
    def limit(self) -> int | None:
        """Most tokens of a text with its start; None without a limit."""
        positions = getattr(self.model.config, "max_position_embeddings", None) or 10**9
        most = min(positions, self.tokenizer.model_max_length)
        return most if most < 10**9 else None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the weights, 64 hexadecimal digits."""
        digest = hashlib.sha256()
        for key, tensor in sorted(self.model.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    @property
    def signature(self) -> str:
        """Name, weights, start and precision: all that a judgement depends on."""
        start = "none" if self.start is None else self.tokenizer.convert_ids_to_tokens(self.start)
        dtype = next(name for name, dtype in DTYPES.items() if dtype == self.model.dtype)
        return f"judge:{Path(self.name).name}@{self.fingerprint[:12]}|start:{start}|dtype:{dtype}"

    def judge(self, texts: Iterable[str], observe: Callable[[int], None] = lambda texts: None) -> Iterator[Judgement]:
        """Judge texts, in the order given, with bounded memory; `observe` is told of the texts of each forward pass.

        Texts are sorted by length and batched under the token budget. Raises `InputError` naming a text that is empty
        or too long, once all before it were yielded, and `NumericalError` for NaN.
        """
        chunk: list[tuple[str, list[int]]] = []
        size = 0
        for number, text in enumerate(texts, start=1):
            try:
                ids = self._encode(text, number)
            except InputError:
                yield from self._judge_chunk(chunk, observe)
                raise
            chunk.append((text, ids))
            size += len(ids)
            if size >= _CHUNK * self.token_budget:
                yield from self._judge_chunk(chunk, observe)
                chunk, size = [], 0
        yield from self._judge_chunk(chunk, observe)

    def require(self, texts: Iterable[str]) -> None:
        """Raises the `InputError` that `judge` would raise sooner or later, before the first forward pass."""
        for number, text in enumerate(texts, start=1):
            self._encode(text, number)

    def _encode(self, text: str, number: int) -> list[int]:
        """[1 + T] ids: the start (or the first token, if there is no start) and the tokens to score."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        given = ids if self.start is None else [self.start, *ids]
        shown = f"text {number}, {shorten(text)!r}, cannot be judged"
        if len(given) < 2:
            least = "one token" if self.start is not None else "two tokens, as this judge has no start token"
            raise InputError(f"{shown}: it has {len(ids)} tokens, expected at least {least}")
        if self.limit is not None and len(given) > self.limit:
            raise InputError(f"{shown}: {len(given)} tokens, the judge takes {self.limit}; divide the text")
        return given

    def _judge_chunk(self, chunk: list[tuple[str, list[int]]], observe: Callable[[int], None]) -> Iterator[Judgement]:
        found: list[Judgement | None] = [None] * len(chunk)
        for batch in batches([len(ids) for _, ids in chunk], self.token_budget):
            values = self._forward([chunk[index][1] for index in batch])
            for index, row in zip(batch, values.tolist(), strict=True):
                text, ids = chunk[index]
                log_probabilities = tuple(row[: len(ids) - 1])
                if any(map(math.isnan, log_probabilities)):
                    raise NumericalError(f"the judge '{self.name}' returned NaN for {text[:60]!r}")
                found[index] = Judgement(text, log_probabilities, len(text.split()))
            observe(len(batch))
        yield from (one for one in found if one is not None)

    @torch.inference_mode()
    def _forward(self, rows: list[list[int]]) -> Tensor:
        """[B, T] float64 log-probability of every token but the first; what stands at padding means nothing."""
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=self.model.device)
        seen = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self.model.device)
        logits = self.model(input_ids=ids, attention_mask=seen, use_cache=False).logits
        found = [_log_p(logits[index, :-1], ids[index, 1:]) for index in range(len(rows))]
        return torch.stack(found).cpu()


def _log_p(logits: Tensor, tokens: Tensor) -> Tensor:
    """[T] float64 log-softmax of logits [T, V] at `tokens` [T]."""
    precise = logits.double()
    return precise.gather(-1, tokens[:, None])[:, 0] - precise.logsumexp(-1)


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of texts, longest first, as many together as fit `budget` tokens with padding; at least one."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        most = max(1, budget // lengths[order[start]])
        yield order[start : start + most]
        start += most


def start_token(tokenizer: Any, start: str | None = "auto") -> int | None:
    """The id of the token that a text begins after; see `Judge.load`. Raises `InputError` for an unknown one."""
    if start is None:
        return None
    known = tokenizer.get_vocab()
    if start != "auto":
        if start not in known:
            raise InputError(f"the judge has no token {start!r}; expected the text of one token, or auto, or none")
        return int(known[start])
    own: list[int] = tokenizer("a", verbose=False)["input_ids"]
    if own and own[0] in tokenizer.all_special_ids:
        return own[0]
    found = (known.get(SEPARATOR), tokenizer.bos_token_id, tokenizer.eos_token_id)
    return next((int(token) for token in found if token is not None), None)
