"""A masked LM that reads noisy embeddings: tokens under Gaussian noise in, p(w | x̃) at every noisy position out.

    x̃_t = e(w_t) + σ ε                                     ‖e(w)‖ = 1, so that σ means the same for every model
    own(w) = (⟨x̃_t, e(w)⟩ − ‖e(w)‖²/2) / σ²                = log N(x̃_t; e(w), σ²) up to a constant
    into the body:   Σ_w softmax(log p(w) + own(w)) E(w) + level(log σ)      the denoiser of a position on its own
    out of the head: log p(w | x̃) = f_t(w) + own(w) + constant               what context and what t itself say

By Bayes' rule p(w_t | x̃) ∝ p(w_t | x̃_∖t) N(x̃_t; e(w_t), σ²) exactly, so the network f has only the context to learn,
and its input stays among the embeddings E that the body knows, whatever σ and the width. `level` is an added embedding,
zero at first: a pretrained model begins as itself. Positions without noise hold their token, or the mask token, which
is the limit σ → ∞; so the model goes on being a masked LM.

The vectors e are the model's input embeddings when training began, centred, each of length 1, and never change: a
learnt e could shrink the task to nothing. Sources: Vincent (2011) for the reading; Strudel et al. (2022) and Dieleman
et al. (2022), CDCD, for embeddings of fixed length, cross-entropy and interpolation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from maskropolis.errors import ModelError
from maskropolis.models.huggingface.split import BodyAndHead

FILE = "noise_conditioning.safetensors"
MODULE = "noise_conditioning"
_FREQUENCIES = 16
_HIDDEN = 128


class NoiseConditioning(nn.Module):
    """What a masked LM needs beside its own weights.

    Attributes:
        embeddings: [V, d] the vectors e(w). log_prior: [V] how frequent each token is, −inf where impossible.
        low, high: the noise levels that were trained on.
    """

    embeddings: Tensor
    log_prior: Tensor

    def __init__(self, embeddings: Tensor, log_prior: Tensor, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.register_buffer("embeddings", embeddings.detach().float().contiguous())
        self.register_buffer("log_prior", log_prior.detach().float().contiguous())
        last = nn.Linear(_HIDDEN, embeddings.shape[1])
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.level = nn.Sequential(nn.Linear(2 * _FREQUENCIES, _HIDDEN), nn.SiLU(), last)

    @classmethod
    def beginning(cls, network: Any, log_prior: Tensor, low: float, high: float) -> NoiseConditioning:
        """For a network that has not seen noise yet: e from its input embeddings."""
        return cls(unit_embeddings(network.get_input_embeddings().weight), log_prior, low, high)

    def own(self, noisy: Tensor, sigmas: Tensor) -> Tensor:
        """[M, V] log-likelihood of each token given its own noisy vector alone, up to a constant in w; never in half
        precision. `noisy` [M, d], `sigmas` [M]."""
        with torch.autocast(noisy.device.type, enabled=False):
            fit = noisy.float() @ self.embeddings.T - self.embeddings.square().sum(-1) / 2
            return fit / sigmas.float().square()[:, None]

    def inputs(self, own: Tensor, sigmas: Tensor, embeddings: Tensor) -> Tensor:
        """[M, d] what the body sees of noisy positions; `own` [M, V], `embeddings` [V, d] those of the network."""
        alone = (self.log_prior + own).softmax(-1)
        return alone.to(embeddings.dtype) @ embeddings + self.level(_features(sigmas)).to(embeddings.dtype)

    def save(self, folder: Path) -> None:
        """Write `FILE` into `folder`."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        save_file(tensors, folder / FILE, metadata={"sigmas": json.dumps([self.low, self.high])})


def unit_embeddings(weight: Tensor) -> Tensor:
    """[V, d] rows of `weight` without their mean, each of length 1."""
    centred = weight.detach().float() - weight.detach().float().mean(0)
    return centred / centred.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def _features(sigmas: Tensor) -> Tensor:
    """[M, 2F] sines and cosines of log σ."""
    octaves = torch.linspace(-2, 3, _FREQUENCIES, device=sigmas.device).exp2()
    angles = sigmas.float().log()[:, None] * octaves
    return torch.cat([angles.sin(), angles.cos()], -1)


def noisy_logits(
    network: Any,
    parts: BodyAndHead | None,
    conditioning: NoiseConditioning,
    tokens: Tensor,
    noisy: Tensor,
    sigmas: Tensor,
    chosen: Tensor,
    attention: Tensor | None = None,
) -> Tensor:
    """[K, V] float32 log p(w | x̃), not normalised, at the K places where `chosen` [N, T] is True, in row order.

    `sigmas` [N, T]: where it is positive and finite, `noisy` [N, T, d] is seen instead of the token. `parts` is the
    network divided, so that its output layer runs at the chosen places only, or None.
    """
    noised = (sigmas > 0) & sigmas.isfinite()
    table = network.get_input_embeddings()
    inputs, levels = table(tokens), sigmas[noised]
    own = conditioning.own(noisy[noised], levels)
    seen = conditioning.inputs(own, levels, table.weight).to(inputs.dtype)
    inputs = inputs.masked_scatter(noised[..., None], seen)
    if parts is None:
        logits = network(inputs_embeds=inputs, attention_mask=attention).logits[chosen]
    else:
        hidden = parts.body(None, attention, inputs_embeds=inputs)[:, : tokens.shape[1]]
        logits = parts.head(hidden[chosen].unsqueeze(0))[0]
    both = (noised & chosen)[chosen]
    return logits.float().index_add(0, both.nonzero()[:, 0], own[chosen[noised]])


def load_conditioning(name: str, revision: str | None = None) -> NoiseConditioning | None:
    """The conditioning saved with a model, or None if there is none. Raises `ModelError` for a damaged file."""
    path = _located(name, revision)
    if path is None:
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
            low, high = json.loads(file.metadata()["sigmas"])
        made = NoiseConditioning(tensors["embeddings"], tensors["log_prior"], float(low), float(high))
        made.load_state_dict(tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"the noise conditioning '{path}' is damaged: {str(error)[:200]}") from None
    return made.eval()


def _located(name: str, revision: str | None) -> Path | None:
    """The file in a folder, or in the local cache of a hub name."""
    if Path(name).is_dir():
        return Path(name) / FILE if (Path(name) / FILE).is_file() else None
    from transformers.utils import cached_file

    try:
        found = cached_file(
            name, FILE, revision=revision, _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False, _raise_exceptions_for_gated_repo=False,
        )  # fmt: skip
    except (OSError, ValueError):
        return None
    return None if found is None else Path(found)
