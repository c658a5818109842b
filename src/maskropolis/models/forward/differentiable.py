"""Masked LMs that can say how a term of the energy changes with the tokens that the model reads.

A token enters a network as a vector, a one-hot row times the input embeddings W [V, H]. Where the network goes on as a
smooth function of that vector, the derivative of a number F with respect to the one-hot at s is, for token w,

    ∂F / ∂x_s[w] = g_s · W[w],    g_s = ∂F / ∂e_s    ("slope": the gradient at what the embedding layer gives out)

so [T, H] numbers a row stand for [T, V].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeGuard

import torch
from torch import Tensor, nn

from maskropolis.errors import ModelError
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences

Term = Callable[[Tensor, Tensor], Tensor]
"""(logits [N, V], tokens [N]) -> [N], differentiable."""

ROWS = 3
"""Model rows that a row with its gradient counts: one forward, and two for the backward pass, which makes two matrix
products where the forward pass makes one."""


class DifferentiableMaskedLM(MaskedLM, Protocol):
    """A masked LM with slopes."""

    @property
    def input_vectors(self) -> Tensor:
        """[V, H], what tokens enter the network as."""
        ...

    def logits_and_slopes(
        self, sequences: Sequences, positions: Tensor, tokens: Tensor, term: Term
    ) -> tuple[Tensor, Tensor]:
        """Logits [N, V] at `positions` [N] and slopes [N, T, H] of term(logits, tokens), row by row.

        Costs `ROWS` model rows a row.
        """
        ...


def is_differentiable(model: MaskedLM) -> TypeGuard[DifferentiableMaskedLM]:
    """Whether the model has slopes."""
    return hasattr(model, "logits_and_slopes") and hasattr(model, "input_vectors")


def slopes_through(
    embedding: nn.Module,
    forward: Callable[[Sequences, Tensor], Tensor],
    sequences: Sequences,
    positions: Tensor,
    tokens: Tensor,
    term: Term,
) -> tuple[Tensor, Tensor]:
    """`logits_and_slopes` by automatic differentiation; `forward(sequences, positions [N, 1])` gives logits [N, 1, V].

    What the module `embedding` gives out is caught on its way, so whatever else the network makes of the token ids (the
    places of padding or of masks) stays as it is. Works within inference mode too. Raises `ModelError` if `embedding`
    is not used once.
    """
    caught: list[Tensor] = []

    def catch(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        caught.append(output.detach().requires_grad_())
        return caught[-1].clone()  # some networks write into it

    with torch.inference_mode(False), torch.enable_grad():
        handle = embedding.register_forward_hook(catch)
        try:
            logits = forward(_copied(sequences), positions.clone()[:, None])[:, 0]
        finally:
            handle.remove()
        if len(caught) != 1 or caught[0].dim() != 3 or caught[0].shape[1] < sequences.width:
            raise ModelError("the model does not read its tokens through one embedding layer, so it has no gradients")
        (slopes,) = torch.autograd.grad(term(logits, tokens.clone()).sum(), caught[0])
    return logits.detach(), slopes[:, : sequences.width]


def vectors_of(embedding: nn.Module, size: int, device: torch.device) -> Tensor:
    """[V, H], what `embedding` gives out for the tokens 0 … `size`−1."""
    if type(embedding) is nn.Embedding:
        return embedding.weight.detach()[:size]
    with torch.inference_mode(False), torch.no_grad():
        return embedding(torch.arange(size, device=device)[None])[0]


def _copied(sequences: Sequences) -> Sequences:
    """Tensors made in inference mode cannot take part in differentiation; their copies can."""
    source = None if sequences.source is None else sequences.source.clone()
    return Sequences(sequences.tokens.clone(), sequences.free.clone(), sequences.attention.clone(), source)
