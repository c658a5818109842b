"""Texts of one length, written as each reading writes them, with what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import maskropolis
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.targets.energy import NORM

NAMES = ("gibbs", "metropolis-hastings", "mask-predict", "langevin", "diffusion")
READINGS = {
    "gibbs": "pseudo-likelihood",
    "metropolis-hastings": "energy",
    "mask-predict": "denoising autoencoder",
    "langevin": "score",
    "diffusion": "diffusion",
}
KERNEL = "informed"

Maker = Callable[[HuggingFaceMaskedLM], dict[str, Any]]


def suits(sampler: str, model: str) -> bool:
    """Langevin dynamics need a model that was trained on noisy embeddings."""
    return sampler != "langevin" or model == "gaussian-dae"


def makers(scale: Any, seed: int) -> dict[str, Maker]:
    """For each sampler, what writes `scale.texts` texts of `scale.tokens` tokens."""
    shared: dict[str, Any] = {"length": scale.tokens, "chains": scale.texts, "seed": seed}

    def chain(kernel: str) -> Maker:
        settings = {**shared, "kernel": kernel, "start": "diffusion", "burn_in": scale.sweeps, "samples": 1}
        return lambda model: written(model, lambda: maskropolis.sample(model, progress=False, **settings))

    def generator(**settings: Any) -> Maker:
        return lambda model: written(model, lambda: maskropolis.generate(model, **shared, **settings))

    return {
        "gibbs": chain("gibbs"),
        "metropolis-hastings": chain(KERNEL),
        "mask-predict": generator(method="mask-predict", steps=scale.iterations),
        "langevin": generator(method="langevin", steps=scale.langevin_steps, levels=scale.langevin_levels),
        "diffusion": generator(method="diffusion", sampler="first-hitting"),
    }


def written(model: HuggingFaceMaskedLM, write: Callable[[], Any]) -> dict[str, Any]:
    """Texts, their energy per token under the model, and processor seconds a text (all threads together)."""
    begin = time.process_time()
    found = write()
    seconds = time.process_time() - begin
    texts = [text if text.strip() else "." for text in found.texts]
    ids = [record["token_ids"] for record in found.records]
    special = model.codec.special
    sequences = model.codec.pad(ids, [[token not in special for token in row] for row in ids]).to(model.device)
    energy = NORM.evaluate(model, sequences).energy.sum() / sequences.free.sum()
    return {
        "signature": found.signature,
        "texts": texts,
        "energy_per_token": round(float(energy), 4),
        "seconds_per_text": round(seconds / len(texts), 4),
    }
