"""The forward pass of training: the body over whole rows, the output layer at the chosen positions only."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from maskropolis.models.huggingface.split import BodyAndHead, check
from maskropolis.training.masked.denoising import denoising_logits
from maskropolis.training.objectives import Corrupted


class Predictor:
    """Logits of one masked LM at chosen positions. Falls back to the full forward pass if the model cannot be split."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._parts = self._split()

    @property
    def parts(self) -> BodyAndHead | None:
        """The model divided into body and head, if it can be."""
        return self._parts

    def _split(self) -> BodyAndHead | None:
        try:
            parts = BodyAndHead(self.model)
        except ValueError:
            return None
        was_training = self.model.training
        self.model.eval()
        device = next(self.model.parameters()).device
        probe = torch.arange(8, device=device).unsqueeze(0) % self.model.config.vocab_size
        try:
            return parts if check(self.model, parts, probe) else None
        finally:
            self.model.train(was_training)

    def logits(self, tokens: Tensor, chosen: Tensor) -> Tensor:
        """[K, V] at the K places where `chosen` [N, T] is True; `tokens` [N, T] hold no padding."""
        if self._parts is None:
            return self.model(input_ids=tokens).logits[chosen]
        hidden = self._parts.body(tokens)
        return self._parts.head(hidden[chosen].unsqueeze(0))[0]


def losses(predictor: Predictor, truth: np.ndarray, corrupted: Corrupted, device: torch.device) -> Tensor:
    """Cross-entropy in nats at each chosen position, [K] float32, in row order."""
    tokens = torch.from_numpy(corrupted.tokens).to(device)
    chosen = torch.from_numpy(corrupted.chosen).to(device)
    labels = torch.from_numpy(truth[corrupted.chosen]).to(device)
    if corrupted.sigmas is None:
        logits = predictor.logits(tokens, chosen).float()
    else:
        logits = denoising_logits(predictor.model, predictor.parts, torch.from_numpy(truth).to(device), corrupted)
    if corrupted.impossible is not None:
        logits = logits.index_fill(-1, torch.tensor([corrupted.impossible], device=device), -torch.inf)
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def objective_value(each: Tensor, corrupted: Corrupted) -> Tensor:
    """The loss of a batch: weighted sum over the chosen positions, divided by the objective's normaliser."""
    if corrupted.weights is not None:
        each = each * torch.from_numpy(corrupted.weights[corrupted.chosen]).to(each)
    return each.sum() / corrupted.normaliser
