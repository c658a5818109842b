"""Exact distributions by enumeration, where the state space is small enough."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import Energy

MOST_STATES = 200_000


def all_states(model: MaskedLM, template: Sequences, tokens: Tensor | None = None) -> Sequences:
    """Every filling of the free positions of the one row `template`: [S, T], S = (number of tokens)^n.

    `tokens` [M] int64 are the tokens to consider, by default all that the model allows; the first free position varies
    slowest. Raises `InputError` beyond 200,000 states.
    """
    if len(template) != 1:
        raise ValueError(f"expected one row, got {len(template)}")
    choices = model.allowed.nonzero()[:, 0] if tokens is None else tokens
    free = template.free[0].nonzero()[:, 0]
    count = len(choices) ** len(free)
    if count > MOST_STATES:
        raise InputError(
            f"{len(choices)} tokens at {len(free)} positions make {count} states, more than {MOST_STATES}; "
            "free fewer positions or name a shortlist"
        )
    fillings = torch.tensor(list(itertools.product(choices.tolist(), repeat=len(free))), device=template.device)
    states = template.rows(torch.zeros(count, dtype=torch.long, device=template.device))
    return states.with_tokens(free.expand(count, -1), fillings)


def exact_distribution(model: MaskedLM, energy: Energy, states: Sequences, temperature: float = 1.0) -> Tensor:
    """π_τ over `states` [S], float64, normalised by their sum."""
    log_weights = -energy.evaluate(model, states).energy / temperature
    return torch.softmax(log_weights, 0)
