"""A model seen through a small vocabulary, so that all sentences of a template can be enumerated.

The conditionals are the model's own. Tokens outside the small vocabulary keep their share of the softmax, as one entry
that no sampler may write, so that log p of a kept token is what it is under the whole model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.models.protocol import Budget, MaskedLM
from maskropolis.sequences import Sequences


class ShortlistMaskedLM:
    """`model` restricted to `shortlist` [M] (ids of tokens a sampler may write) and the tokens of `context`.

    New ids: 0 … M−1 the shortlist, then the other tokens of `context`, the mask token, and last "any other token" with
    the log-sum-exp of their logits. `narrow` translates sequences. Each masked row is computed once, alone in its
    forward pass, and remembered, so a conditional is one number whatever it is asked for.
    """

    padding_safe = True

    def __init__(self, model: MaskedLM, shortlist: Tensor, context: Sequences) -> None:
        shortlist = shortlist.to(model.device)
        context = context.to(model.device)
        others = context.tokens[context.attention].unique()
        others = others[~torch.isin(others, shortlist) & (others != model.mask_token)]
        mask = torch.tensor([model.mask_token], device=model.device)
        self.kept = torch.cat([shortlist, others, mask])
        self.vocabulary_size = len(self.kept) + 1
        self.mask_token = len(self.kept) - 1
        self.allowed = torch.arange(self.vocabulary_size) < len(shortlist)
        self.name, self.max_length = model.name, model.max_length
        self.budget = Budget()
        self._model = model
        self._memory: dict[tuple[tuple[int, ...], int | None, int], Tensor] = {}

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def narrow(self, sequences: Sequences) -> Sequences:
        """The same sequences in the ids of this model. Raises `ValueError` for a token that it does not have."""
        tokens = sequences.tokens.to(self.kept.device)
        match = tokens[..., None] == self.kept
        known = match.any(-1) | ~sequences.attention.to(tokens.device)
        if not bool(known.all()):
            raise ValueError(f"token {int(tokens[~known][0])} is neither in the shortlist nor in the context")
        narrowed = match.long().argmax(-1).cpu()
        source = None if sequences.source is None else sequences.source.cpu()
        return Sequences(narrowed, sequences.free.cpu(), sequences.attention.cpu(), source)

    def logits(self, sequences: Sequences, positions: Tensor) -> Tensor:
        """[N, K, V] float64."""
        out = torch.empty(*positions.shape, self.vocabulary_size, dtype=torch.float64)
        sources = [None] * len(sequences) if sequences.source is None else sequences.source.tolist()
        tokens, lengths = sequences.tokens.tolist(), sequences.lengths.tolist()
        for row, (ids, length, source) in enumerate(zip(tokens, lengths, sources, strict=True)):
            for column, position in enumerate(positions[row].tolist()):
                key = (tuple(ids[:length]), source, position)
                if key not in self._memory:
                    self._memory[key] = self._compute(sequences.rows(torch.tensor([row])), length, position)
                out[row, column] = self._memory[key]
        return out

    def _compute(self, one: Sequences, length: int, position: int) -> Tensor:
        device = self._model.device
        tokens = self.kept[one.tokens[:, :length].to(device)]
        free, attention = one.free[:, :length].to(device), one.attention[:, :length].to(device)
        source = None if one.source is None else one.source.to(device)
        asked = torch.tensor([[position]], device=device)
        full = self._model.logits(Sequences(tokens, free, attention, source), asked)[0, 0].double()
        rest = full.clone()
        rest[self.kept] = -torch.inf
        return torch.cat([full[self.kept], rest.logsumexp(0)[None]]).cpu()

    def fingerprint(self) -> str:
        return self._model.fingerprint()
