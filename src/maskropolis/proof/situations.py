"""Where kernels are certified: models and sets of sentences small enough to enumerate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.protocol import MaskedLM
from maskropolis.models.reference.shortlist import ShortlistMaskedLM
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import block_conditionals
from maskropolis.targets.enumeration import all_states

MOST_STATES = 256


@dataclass(frozen=True, eq=False)
class Situation:
    """A model, every state of a template [S, T], and the temperatures to certify at.

    `products`: whether kernels whose space is a product of several copies (replicas) are certified here as well; it is
    the square of the work, so not everywhere.
    """

    model: MaskedLM
    states: Sequences
    temperatures: tuple[float, ...] = (1.0,)
    products: bool = True

    @property
    def free(self) -> int:
        """Free positions n."""
        return int(self.states.free_counts[0])

    def smallest(self) -> Situation:
        """Two tokens at two free positions: four states, for kernels whose space is a product of several copies."""
        row = self.states.rows(torch.tensor([0]))
        ranks = row.free.long().cumsum(1)
        template = Sequences(row.tokens, row.free & (ranks <= 2), row.attention, row.source)
        narrow = ShortlistMaskedLM(self.model, self.model.allowed.nonzero()[:2, 0], template)
        return Situation(narrow, all_states(narrow, narrow.narrow(template)), self.temperatures)


def tabular_situations() -> Iterator[Situation]:
    """Small random models, whose conditionals belong to no joint distribution, and one whose conditionals do."""
    for tokens, free, temperatures in (
        (3, (True, True), (1.0,)),
        (2, (True, True, True), (1.0, 0.6)),
        (2, (True, False, True, True), (1.4,)),
    ):
        length = len(free)
        lengths = [length, length - 1, length + 1]  # the neighbours for kernels that change the length
        model = TabularMaskedLM.random(tokens, lengths, seed=10 * length + tokens, spread=1.5)
        model.name = f"tabular: random, {tokens} tokens, length {length}"
        yield Situation(model, _states(model, free), temperatures, products=length == 2)
    generator = torch.Generator().manual_seed(3)
    model = TabularMaskedLM.from_joint(torch.rand(2, 2, 2, generator=generator, dtype=torch.float64) + 0.05)
    model.name = "tabular: consistent, 2 tokens, length 3"
    yield Situation(model, _states(model, (True, True, True)), products=False)


def _states(model: TabularMaskedLM, free: tuple[bool, ...]) -> Sequences:
    mask = torch.tensor([free])
    tokens = torch.arange(len(free))[None] % (model.vocabulary_size - 1)
    return all_states(model, Sequences(tokens, mask, torch.ones_like(mask)))


def real_situation(
    model: HuggingFaceMaskedLM, template: str | None = None, tokens: Sequence[str] = (), size: int = 3
) -> Situation:
    """A template of a real model with its free positions over a shortlist.

    `template` has two or three `[MASK]`; without one, three neighbours in a row of seven otherwise likely tokens.
    `tokens` are vocabulary entries; without them, the `size` likeliest at the masks. Raises `InputError`.
    """
    start = open_template(model, template)
    listed = shortlist(model, start, tokens, size)
    count = len(listed) ** int(start.free_counts[0])
    if count > MOST_STATES:
        raise InputError(f"{len(listed)} tokens make {count} sentences, more than {MOST_STATES}; name fewer tokens")
    narrow = ShortlistMaskedLM(model, listed, start)
    return Situation(narrow, all_states(narrow, narrow.narrow(start)))


def open_template(model: HuggingFaceMaskedLM, template: str | None) -> Sequences:
    """One row with its two or three free positions masked."""
    if template is not None:
        start = model.codec.template([template])
    else:
        blank = model.codec.blank([7]).to(model.device)
        free = blank.free[0].nonzero()[:, 0]
        middle = free[2:5]
        logits = block_conditionals(model, blank, free[None])[0].masked_fill(~model.allowed, -torch.inf)
        filled = blank.with_tokens(free[None], logits.argmax(-1)[None]).masked(middle[None], model.mask_token)
        start = Sequences(filled.tokens, filled.tokens == model.mask_token, filled.attention)
    if not 2 <= int(start.free_counts[0]) <= 3:
        raise InputError(f"the template has {int(start.free_counts[0])} free tokens; expected two or three [MASK]")
    return start.to(model.device)


def shortlist(model: HuggingFaceMaskedLM, start: Sequences, tokens: Sequence[str], size: int) -> Tensor:
    """[M] ids: `tokens`, or the `size` tokens that the model thinks likeliest, summed over the masks of `start`."""
    if tokens:
        return torch.tensor([_token(model, token) for token in dict.fromkeys(tokens)], device=model.device)
    if not 2 <= size <= 6:
        raise InputError(f"a shortlist of {size} tokens is out of range; expected 2 to 6")
    masks = start.free[0].nonzero()[:, 0][None]
    logits = block_conditionals(model, start, masks)[0].double().masked_fill(~model.allowed, -torch.inf)
    return logits.softmax(-1).sum(0).topk(size).indices


def _token(model: HuggingFaceMaskedLM, token: str) -> int:
    vocabulary = model.codec.tokenizer.get_vocab()
    if token not in vocabulary or not bool(model.allowed[vocabulary[token]]):
        raise InputError(f"{token!r} is not one token that the model can write; name entries of its vocabulary")
    return int(vocabulary[token])
