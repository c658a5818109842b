"""Experts that run a network over the decoded text, with a tokenizer of its own.

classifier   E = −log p(label | text)
causal       E = −Σ_t log p(x_t | x_<t)
embedding    E = 1 − cos(h(text), h(reference)),   h the mean of the last hidden states
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError, ModelError, NumericalError, unknown_name
from maskropolis.models.huggingface.pretrained import network_from, own_refusal, tokenizer_from
from maskropolis.models.huggingface.quiet import quiet
from maskropolis.sequences import Sequences
from maskropolis.targets.experts import NETWORK

BATCH = 32
"""Texts in one forward pass."""


@dataclass(frozen=True, eq=False)
class Network:
    """A transformers model with its tokenizer. Texts beyond its limit are cut."""

    folder: str
    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, folder: str, kind: str, device: torch.device, trust: bool = False) -> Network:
        """`kind` is a class of transformers such as `AutoModelForCausalLM`. Weights must be safetensors; code that
        comes with them runs only with `trust`.

        Raises `ModelError`, also where weights that the kind needs are missing.
        """
        try:
            with quiet():
                tokenizer = tokenizer_from(folder, trust=trust)
                model, report = network_from(kind, folder, trust=trust, use_safetensors=True, output_loading_info=True)
        except Exception as error:
            refused = own_refusal(folder, error)
            raise refused or ModelError(f"cannot load the expert '{folder}' as {kind}: {str(error)[:200]}") from None
        missing = [key for key in sorted(report["missing_keys"]) if "position_ids" not in key and "pooler" not in key]
        if missing:
            raise ModelError(f"'{folder}' is no complete {kind}: weights are missing, e.g. {missing[0]}")
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        model.config.pad_token_id = tokenizer.pad_token_id
        return cls(folder, model.to(device).eval(), tokenizer)

    @property
    def limit(self) -> int | None:
        """Most tokens that it takes."""
        positions = getattr(self.model.config, "max_position_embeddings", None) or 10**9
        most = min(positions, self.tokenizer.model_max_length)
        return most if most < 10**9 else None

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """(first text, inputs of the model) of each batch."""
        for first in range(0, len(texts), BATCH):
            batch = self.tokenizer(
                [text or " " for text in texts[first : first + BATCH]],
                padding=True,
                padding_side="right",
                truncation=self.limit is not None,
                max_length=self.limit,
                return_tensors="pt",
                return_token_type_ids=False,
            )
            yield first, dict(batch.to(self.model.device))

    def each(self, texts: Sequence[str], energy: Any, device: torch.device) -> Tensor:
        """[C] float64, `energy(inputs)` of all batches. Raises `NumericalError` for NaN."""
        found = [torch.empty(0, dtype=torch.float64)]
        with torch.inference_mode():
            found += [energy(inputs).double().cpu() for _, inputs in self.batches(texts)]
        together = torch.cat(found)
        bad = together.isnan().nonzero()[:, 0].tolist()
        if bad:
            raise NumericalError(f"the expert '{self.folder}' returned NaN", bad)
        return together.to(device)


@dataclass(frozen=True)
class Classifier:
    """−log of the probability of one class under an `AutoModelForSequenceClassification`."""

    cost: ClassVar[int] = NETWORK
    bounded: ClassVar[bool] = True
    repels: ClassVar[bool] = False
    network: Network
    label: str
    index: int

    @classmethod
    def load(cls, folder: str, label: str, device: torch.device, trust: bool = False) -> Classifier:
        """Raises `InputError` with the nearest name for a label that the classifier does not have."""
        network = Network.load(folder, "AutoModelForSequenceClassification", device, trust)
        labels = {str(name): int(index) for index, name in network.model.config.id2label.items()}
        if len(labels) < 2:
            raise InputError(f"the expert '{folder}' has one output, a regression; expected a classifier of two labels")
        if label not in labels:
            raise unknown_name(f"label of the classifier '{folder}':", label, labels)
        return cls(network, label, labels[label])

    @property
    def name(self) -> str:
        return f"classifier:{self.network.folder}:{self.label}"

    def energy(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        def of(inputs: dict[str, Tensor]) -> Tensor:
            return -self.network.model(**inputs).logits.double().log_softmax(-1)[:, self.index]

        return self.network.each(texts, of, sequences.device).clamp(min=0)


@dataclass(frozen=True)
class Causal:
    """Minus the log-likelihood under a causal LM; its first token is given, or the start token if it has one."""

    cost: ClassVar[int] = NETWORK
    bounded: ClassVar[bool] = True
    repels: ClassVar[bool] = False
    network: Network

    @classmethod
    def load(cls, folder: str, device: torch.device, trust: bool = False) -> Causal:
        network = Network.load(folder, "AutoModelForCausalLM", device, trust)
        return cls(network)

    @property
    def name(self) -> str:
        return f"causal:{self.network.folder}"

    def energy(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        def of(inputs: dict[str, Tensor]) -> Tensor:
            ids, seen = self._started(inputs["input_ids"], inputs["attention_mask"])
            logits = self.network.model(input_ids=ids, attention_mask=seen).logits[:, :-1].double()
            log_p = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
            return -(log_p.masked_fill(~seen[:, 1:].bool(), 0.0)).sum(1)

        return self.network.each(texts, of, sequences.device).clamp(min=0)

    def _started(self, ids: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """With the start token in front, where there is one and the tokenizer did not put it there."""
        start = self.network.tokenizer.bos_token_id
        if start is None or bool((ids[:, 0] == start).all()):
            return ids, seen
        ids = torch.nn.functional.pad(ids, (1, 0), value=start)[:, : self.network.limit]
        return ids, torch.nn.functional.pad(seen, (1, 0), value=1)[:, : self.network.limit]


@dataclass(frozen=True, eq=False)
class Embedding:
    """Cosine distance between the mean hidden states of the text and of a reference, 0 to 2."""

    cost: ClassVar[int] = NETWORK
    bounded: ClassVar[bool] = True
    repels: ClassVar[bool] = True
    network: Network
    reference: str
    direction: Tensor

    @classmethod
    def load(cls, folder: str, reference: str, device: torch.device, trust: bool = False) -> Embedding:
        if not reference.strip():
            raise InputError("the expert 'embedding' has no reference; expected embedding:DIR:REFERENCE:WEIGHT")
        network = Network.load(folder, "AutoModel", device, trust)
        with torch.inference_mode():
            (_, inputs), *_ = network.batches([reference])
            return cls(network, reference, _mean_state(network, inputs)[0])

    @property
    def name(self) -> str:
        return f"embedding:{self.network.folder}:{self.reference}"

    def energy(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        def of(inputs: dict[str, Tensor]) -> Tensor:
            return 1 - torch.cosine_similarity(_mean_state(self.network, inputs), self.direction[None], dim=1)

        return self.network.each(texts, of, sequences.device).clamp(min=0)


def _mean_state(network: Network, inputs: dict[str, Tensor]) -> Tensor:
    """[N, H] float64, mean of the last hidden states over the tokens."""
    hidden = network.model(**inputs).last_hidden_state.double()
    seen = inputs["attention_mask"][..., None].double()
    mean: Tensor = (hidden * seen).sum(1) / seen.sum(1).clamp(min=math.ulp(1.0))
    return mean
