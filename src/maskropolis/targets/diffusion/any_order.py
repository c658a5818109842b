"""The any-order autoregressive likelihood: tokens revealed one by one in a uniformly random order.

    −log p(x) ≤ E_σ [ −Σ_j log p(x_σ(j) | x_σ(<j)) ],     σ uniform over the n! orders of the free positions

The right-hand side equals the continuous-time bound of a masked diffusion, whatever its noise schedule (Uria, Murray &
Larochelle 2014; Hoogeboom et al. 2022; Ou et al. 2024). Each order costs n rows and gives one unbiased term.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from maskropolis.errors import NumericalError
from maskropolis.models.forward.rows import Rows, batches
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import AUXILIARY, Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.diffusion.bounds import Bound, BoundSettings, of_like_size, subs


def any_order_bounds(
    model: MaskedLM, sequences: Sequences, settings: BoundSettings, streams: list[int] | None = None
) -> list[Bound]:
    """The bound of each row, from max(2, ⌈samples / n⌉) whole orders; its standard error is that of their mean."""
    keys = list(range(len(sequences))) if streams is None else streams
    found = []
    for chain, key in enumerate(keys):
        try:
            found.append(_bound(model, sequences.rows(torch.tensor([chain])), settings, key))
        except NumericalError as error:
            raise NumericalError(error.plain, [chain]) from None
    return found


def _bound(model: MaskedLM, sequence: Sequences, settings: BoundSettings, key: int) -> Bound:
    places = sequence.free[0].nonzero()[:, 0].cpu()
    if not len(places):
        return Bound(0.0, 0.0, 0)
    count = max(2, math.ceil(settings.samples / len(places)))
    generator = Streams(settings.seed, [key], AUXILIARY)
    keys = torch.cat([generator.wide(order, len(places)) for order in range(count)])
    orders = places[keys.argsort(1)].to(sequence.device)  # [count, n]
    totals = order_losses(model, sequence, orders)
    return Bound(float(totals.mean()), float(totals.std() / math.sqrt(count)), count * len(places))


def order_losses(model: MaskedLM, sequence: Sequences, orders: Tensor) -> Tensor:
    """[K] float64, −Σ_j log p(x_σ(j) | x_σ(<j)) of the one row for each of `orders` [K, n]."""
    count, n = orders.shape
    later = torch.arange(n, device=orders.device)
    which, rank = torch.cartesian_prod(torch.arange(count), torch.arange(n)).to(orders.device).T
    out = torch.zeros(count * n, dtype=torch.float64, device=orders.device)
    for group in of_like_size(n - rank):
        asked = orders[which[group], rank[group], None]
        hidden = later[None, int(rank[group].min()) :]
        masked = torch.where(hidden >= rank[group, None], orders[which[group]][:, -hidden.shape[1] :], asked)
        rows = Rows(torch.zeros_like(group), masked, asked)
        for index, logits in batches(model, sequence, rows):
            truth = sequence.tokens[0, asked[index, 0]]
            out[group[index]] = -subs(logits[:, 0], model.mask_token).gather(-1, truth[:, None])[:, 0]
    return out.view(count, n).sum(1)
