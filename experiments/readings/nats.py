"""What a model says of held-out sentences, in nats per token, as each of the readings has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import common
import torch
from page import estimate

from maskropolis.evaluation.intervals import Resampling, of_sums
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.randomness import AUXILIARY, Streams
from maskropolis.records import Record
from maskropolis.scoring import estimate_settings, score_records
from maskropolis.targets.diffusion.bounds import masked_losses

RATE, HIDDEN_COPIES = 0.15, 4
SIGMA = 0.5


def numbers(
    model: HuggingFaceMaskedLM, sentences: Sequence[str], copies: int, seed: int, resampling: Resampling
) -> dict[str, Any]:
    """By name, each with its 95% interval over sentences:

    pseudo_likelihood   −PLL, one token hidden at a time: E_norm per token
    hidden              −log p of tokens of which 15% are hidden together
    nelbo               the bound of masked diffusion on −log p(x)
    gaussian, denoising the bound of the diffusion of embeddings, and tokens under noise of σ = 0.5; None without noise
                        conditioning
    """
    names = ["nelbo"] + (["gaussian", "denoising"] if model.noise_conditioning is not None else [])
    bounds = estimate_settings(names, copies, 1000, "log-linear", SIGMA, seed)
    records = [Record(text, line, f"sentence {line}") for line, text in enumerate(sentences, start=1)]
    scores = list(score_records(records, model, bounds=bounds))
    tokens, groups = [len(one.tokens) for one in scores], list(range(len(scores)))

    def per_token(values: Sequence[float]) -> dict[str, float | None]:
        return estimate(of_sums(values, tokens, groups, resampling))

    found: dict[str, Any] = {"pseudo_likelihood": per_token([-one.pll for one in scores])}
    lost, asked = hidden(model, sentences, seed)
    found["hidden"] = estimate(of_sums(lost, asked, groups, resampling))
    for name in ("nelbo", "gaussian", "denoising"):
        found[name] = per_token([one.bounds[name].value for one in scores]) if name in names else None
    return {
        "model": common.named(model),
        "sentences": len(sentences),
        "tokens": sum(tokens),
        "numbers": found,
        "estimates": [settings.signature() for settings in bounds],
    }


def hidden(model: HuggingFaceMaskedLM, sentences: Sequence[str], seed: int) -> tuple[list[float], list[float]]:
    """Of each sentence −log p summed over its hidden tokens, and how many there were, over `HIDDEN_COPIES` copies."""
    sequences = model.codec.encode(list(sentences)).to(model.device)
    free = sequences.free.cpu()
    counts = (RATE * free.sum(1)).round().clamp(min=1)
    streams = Streams(seed, range(len(sentences)), AUXILIARY)
    lost, asked = torch.zeros(len(sentences), dtype=torch.float64), torch.zeros(len(sentences), dtype=torch.float64)
    for copy in range(HIDDEN_COPIES):
        rank = torch.where(free, streams.wide(copy, sequences.width), 2.0).argsort(1).argsort(1)
        masked = free & (rank < counts[:, None])
        lost += masked_losses(model, sequences, torch.arange(len(sentences)), masked.to(model.device)).cpu()
        asked += masked.sum(1)
    return lost.tolist(), asked.tolist()
