"""Any transformers masked LM as a `MaskedLM`: the body over whole rows, the output layer only where asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from maskropolis.errors import ModelError
from maskropolis.models.denoising.noise_conditioning import MODULE, NoiseConditioning, load_conditioning
from maskropolis.models.forward.cpu_products import products_for
from maskropolis.models.forward.differentiable import Term, slopes_through, vectors_of
from maskropolis.models.forward.planner import measured_budget
from maskropolis.models.huggingface.compiling import compile_body
from maskropolis.models.huggingface.last_layer import LastLayerAtPositions, last_layer
from maskropolis.models.huggingface.loading import DTYPES, Options, load
from maskropolis.models.huggingface.split import BodyAndHead, check
from maskropolis.models.protocol import Budget
from maskropolis.models.text.alphabets import codec_for
from maskropolis.sequences import Sequences


class HuggingFaceMaskedLM:
    """Wraps an `AutoModelForMaskedLM` and its tokenizer.

    `format` says how text is read and shown (`maskropolis.models.text.alphabets`).
    `loaded_with` are the options of `from_pretrained`, empty for a model that came another way. `noise_conditioning` is
    there if the model was trained on noisy embeddings, else None.

    `output_layer` says how logits at positions are computed: "asked positions" where the architecture divides into
    body and head, else "all positions" (the full forward pass, gathered afterwards).
    """

    def __init__(self, model: Any, tokenizer: Any, name: str | None = None, format: str = "text") -> None:
        self.model = model.eval()
        self.loaded_with: dict[str, Any] = {}
        self.noise_conditioning: NoiseConditioning | None = None
        self.name = name or str(getattr(model.config, "_name_or_path", "")) or type(model).__name__
        self.max_length = _max_length(model.config, tokenizer)
        self.codec = codec_for(format, tokenizer, self.max_length)
        self.mask_token = self.codec.mask_token
        self._device = next(model.parameters()).device
        self.budget = Budget()
        self._products = products_for(self.model)
        self._parts = self._split()
        self._last_layer: LastLayerAtPositions | None = None
        if self._parts is not None and model.dtype == torch.float32:  # half precision could hide a difference
            self._last_layer = last_layer(self._parts, self._probe())
        self.padding_safe = self._padding_safe()
        self.budget.tokens = measured_budget(self)

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        tokenizer: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        allow_pickle: bool = False,
        trust_remote_code: bool = False,
        revision: str | None = None,
        format: str = "text",
        compile: bool = False,
    ) -> HuggingFaceMaskedLM:
        """Load a hub name or local folder. Raises `ModelError` in one line. Weights must be safetensors unless
        `allow_pickle`, which then loads tensors only. `compile`: see `maskropolis.models.huggingface.compiling`."""
        options = Options(tokenizer, device, dtype, allow_pickle, trust_remote_code, revision, format, compile)
        model, found, place = load(str(name), options)
        made = cls(model, found, name=str(name), format=format)
        made.loaded_with = asdict(options)
        conditioning = load_conditioning(str(name), revision)
        made.noise_conditioning = None if conditioning is None else conditioning.to(place)
        if compile:
            compile_body(made)
        return made

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def parts(self) -> BodyAndHead | None:
        """The network divided into body and head, if it can be."""
        return self._parts

    def use_body(self, change: Callable[[nn.Module], Any]) -> None:
        """Run `change(body)` in the place of the body, without the CPU's own products."""
        self._products = None
        if self._parts is not None:
            self._parts.use(change)
        if self._last_layer is not None:
            self._last_layer.use(change)

    def example(self) -> Sequences:
        """[1, T] a short artificial row: some allowed tokens with a mask among them."""
        ids = self._probe()
        return Sequences(ids, torch.zeros_like(ids, dtype=torch.bool), torch.ones_like(ids, dtype=torch.bool))

    @property
    def output_layer(self) -> str:
        return "asked positions" if self._parts is not None else "all positions"

    @cached_property
    def vocabulary_size(self) -> int:
        return int(self.model.config.vocab_size)

    @cached_property
    def allowed(self) -> Tensor:
        return self.codec.allowed(self.vocabulary_size).to(self._device)

    @torch.inference_mode()
    def logits(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """Logits [N, K, V] float32 at `positions` [N, K]."""
        with self._products or nullcontext():
            return self._forward(sequences, positions)

    @cached_property
    def input_vectors(self) -> Tensor:
        """See `DifferentiableMaskedLM`."""
        return vectors_of(self.model.get_input_embeddings(), self.vocabulary_size, self._device)

    def logits_and_slopes(
        self, sequences: Sequences, positions: Tensor, tokens: Tensor, term: Term
    ) -> tuple[Tensor, Tensor]:
        """See `DifferentiableMaskedLM`. Raises `ModelError` where the tokens do not enter by one embedding layer."""
        return slopes_through(self.model.get_input_embeddings(), self._forward, sequences, positions, tokens, term)

    def _forward(self, sequences: Sequences, positions: Tensor) -> Tensor:
        attention = None if bool(sequences.attention.all()) else sequences.attention.long()
        if self._parts is not None and self._last_layer is not None:
            return self._parts.head(self._last_layer.hidden(sequences.tokens, attention, positions))
        if self._parts is not None:
            return self._parts.logits(sequences.tokens, attention, positions).float()
        if attention is None:
            attention = sequences.attention.long()
        full = self.model(input_ids=sequences.tokens, attention_mask=attention).logits
        at = positions.unsqueeze(-1).expand(-1, -1, full.shape[-1])
        return full.gather(1, at).float()

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        tensors = dict(self.model.state_dict())
        if self.noise_conditioning is not None:
            tensors |= {f"{MODULE}.{key}": tensor for key, tensor in self.noise_conditioning.state_dict().items()}
        for key, tensor in sorted(tensors.items()):
            digest.update(key.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 of the weights, 64 hexadecimal digits."""
        return self._fingerprint

    def _probe(self, length: int = 7) -> Tensor:
        """[1, T] ids of a short artificial row: some allowed tokens with a mask among them."""
        before, after = self.codec.frame
        some = self.allowed.nonzero()[:, 0]
        picks = some[torch.linspace(0, len(some) - 1, length, device=some.device).long()].tolist()
        ids = [*before, *picks[: length // 2], self.mask_token, *picks[length // 2 + 1 :], *after]
        return torch.tensor([ids], device=self._device)

    def _split(self) -> BodyAndHead | None:
        try:
            parts = BodyAndHead(self.model)
        except ValueError:
            return None
        tolerance = 1e-4 if self.model.dtype == torch.float32 else 5e-2
        return parts if check(self.model, parts, self._probe(), tolerance) else None

    def _padding_safe(self) -> bool:
        """Whether padding leaves the logits unchanged: not so where convolutions or Fourier mixing see it."""
        row = self.example()
        padded = Sequences(*(torch.nn.functional.pad(t, (0, 6)) for t in (row.tokens, row.free, row.attention)))
        at = torch.arange(row.width, device=self._device)[None]
        try:
            plain = self.logits(row, at)
        except (RuntimeError, ValueError, IndexError) as error:
            raise ModelError(f"'{self.name}' fails on a row of {row.width} tokens: {str(error)[:200]}") from None
        tolerance = 1e-4 if self.model.dtype == torch.float32 else 5e-2
        difference = (plain - self.logits(padded, at)).abs().max()
        return bool(difference <= tolerance * max(1.0, float(plain.abs().max())))

    @property
    def dtype(self) -> str:
        return next(name for name, dtype in DTYPES.items() if dtype == self.model.dtype)


def _max_length(config: Any, tokenizer: Any) -> int | None:
    """Most tokens in a row: by learned positions (RoBERTa keeps the first pad + 1 for itself) and the tokenizer."""
    limits = []
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        offset = 0
        if config.model_type in _POSITIONS_AFTER_PADDING:
            offset = (config.pad_token_id or 0) + 1
        limits.append(positions - offset)
    if isinstance(tokenizer.model_max_length, int) and 0 < tokenizer.model_max_length < 10**9:
        limits.append(tokenizer.model_max_length)
    return min(limits, default=None)


_POSITIONS_AFTER_PADDING = frozenset(
    {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "esm", "longformer", "ibert", "data2vec-text",
     "roberta-prelayernorm", "xmod", "luke"}
)  # fmt: skip
