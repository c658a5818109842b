"""A model seen through a small vocabulary, so that all sentences of a template can be enumerated.

The conditionals are the model's own. Tokens outside the small vocabulary keep their share of the softmax, as one entry
that no sampler may write, so that log p of a kept token is what it is under the whole model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.forward.differentiable import Term, is_differentiable
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
        self._slopes: dict[tuple[Term, tuple[int, ...], int | None, int, int], Tensor] = {}

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

    @property
    def input_vectors(self) -> Tensor:
        """[V, H]; zero for "any other token", which nothing reads."""
        if not is_differentiable(self._model):
            raise InputError(f"model '{self.name}' gives no gradients")
        kept = self._model.input_vectors[self.kept]
        return torch.cat([kept, torch.zeros_like(kept[:1])]).cpu()

    def logits_and_slopes(
        self, sequences: Sequences, positions: Tensor, tokens: Tensor, term: Term
    ) -> tuple[Tensor, Tensor]:
        """See `DifferentiableMaskedLM`. Slopes are computed once and remembered as conditionals are."""
        logits = self.logits(sequences, positions[:, None])[:, 0]
        out = torch.zeros(*sequences.tokens.shape, self.input_vectors.shape[1], dtype=self.input_vectors.dtype)
        sources = [None] * len(sequences) if sequences.source is None else sequences.source.tolist()
        rows = zip(
            sequences.tokens.tolist(), sequences.lengths.tolist(), sources, positions.tolist(), tokens.tolist(),
            strict=True,
        )  # fmt: skip
        for row, (ids, length, source, position, token) in enumerate(rows):
            key = (term, tuple(ids[:length]), source, position, token)
            if key not in self._slopes:
                self._slopes[key] = self._slope(sequences.rows(torch.tensor([row])), length, position, token, term)
            out[row, :length] = self._slopes[key]
        return logits, out

    def _compute(self, one: Sequences, length: int, position: int) -> Tensor:
        asked = torch.tensor([[position]], device=self._model.device)
        return self._narrowed(self._model.logits(self._wide(one, length), asked)[0]).cpu()[0]

    def _slope(self, one: Sequences, length: int, position: int, token: int, term: Term) -> Tensor:
        assert is_differentiable(self._model)
        asked, narrow = (torch.tensor([number], device=self._model.device) for number in (position, token))

        def of_wide(logits: Tensor, tokens: Tensor) -> Tensor:
            return term(self._narrowed(logits), narrow.clone())

        return self._model.logits_and_slopes(self._wide(one, length), asked, self.kept[narrow], of_wide)[1][0].cpu()

    def _wide(self, one: Sequences, length: int) -> Sequences:
        """The first `length` tokens in the ids of the whole model."""
        device = self._model.device
        tokens = self.kept[one.tokens[:, :length].to(device)]
        free, attention = one.free[:, :length].to(device), one.attention[:, :length].to(device)
        return Sequences(tokens, free, attention, None if one.source is None else one.source.to(device))

    def _narrowed(self, logits: Tensor) -> Tensor:
        """[N, V] float64 from the logits of the whole model: those that are kept, and what the others sum up to."""
        wide, kept = logits.double(), self.kept.clone()  # a tensor made in inference mode could not be differentiated
        rest = wide.index_fill(1, kept, -torch.inf)
        return torch.cat([wide[:, kept], rest.logsumexp(1, keepdim=True)], 1)

    def fingerprint(self) -> str:
        return self._model.fingerprint()
