"""What a masked language model says of mutants of one sequence, and how sure it is of each position.

    masked marginals   Σ_{t∈M} log p(x_t = mt | x_∖M) − log p(x_t = wt | x_∖M)     all mutated positions M masked
    wt marginals       Σ_{t∈M} log p(x_t = mt | x_wt) − log p(x_t = wt | x_wt)     nothing masked
    PLL difference     PLL(x_mt) − PLL(x_wt)
    entropy            H_t = −Σ_w p_t(w | x_∖t) log p_t(w | x_∖t)                   in nats

Meier et al. (2021), Language models enable zero-shot prediction of the effects of mutations on protein function.

Model rows of a sequence with n free tokens: masked marginals one for each *set* of mutated positions, whatever takes
their place, so n for all point mutants; wt marginals 1; entropy n. PLL differences share rows that are equal: n of the
wild type, n − 1 for a point mutant, whose row masked at its own position is the wild type's. Differences within one
row need no softmax. The output layer runs at the asked positions alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maskropolis.models.forward.rows import Rows, batches, single_mask_rows
from maskropolis.models.protocol import MaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import free_in_order
from maskropolis.targets.energy import NORM
from maskropolis.targets.mutations.notation import Mutant

Observe = Callable[[int], None]
_ROWS_AT_ONCE = 4096
_Change = tuple[tuple[int, int], ...]
"""(place, new token) of each substitution, in order."""
_Key = tuple[_Change, int]
"""A row: what is changed elsewhere, and the place that is masked."""


def masked_marginals(
    model: MaskedLM, wild_type: Sequences, mutants: Sequence[Mutant], observe: Observe = lambda rows: None
) -> list[float]:
    """One number a mutant; `wild_type` is one row. `observe` is told the rows of each forward pass."""
    free = free_in_order(wild_type)[0]
    by_places: dict[tuple[int, ...], list[int]] = {}
    for number, mutant in enumerate(mutants):
        by_places.setdefault(_places(mutant), []).append(number)
    out = [0.0] * len(mutants)
    for size in sorted({len(places) for places in by_places}):
        sets = [places for places in by_places if len(places) == size]
        positions = free[torch.tensor(sets, device=free.device)]
        rows = Rows(torch.zeros_like(positions[:, 0]), positions, positions)
        for index, logits in batches(model, wild_type, rows):
            numbers = [by_places[sets[row]] for row in index.tolist()]
            scores = _log_odds(logits, [[mutants[number] for number in some] for some in numbers])
            for number, score in zip([number for some in numbers for number in some], scores, strict=True):
                out[number] = score
            observe(len(index))
    return out


def wt_marginals(
    model: MaskedLM, wild_type: Sequences, mutants: Sequence[Mutant], observe: Observe = lambda rows: None
) -> list[float]:
    """One number a mutant, from one unmasked row; `wild_type` is one row."""
    places = sorted({place for mutant in mutants for place in _places(mutant)})
    if not places:
        return [0.0] * len(mutants)
    asked = free_in_order(wild_type)[0][torch.tensor(places, device=wild_type.device)][None]
    rows = Rows(torch.zeros_like(asked[:, 0]), asked[:, :0], asked)
    (_, logits), *_ = batches(model, wild_type, rows)
    observe(1)
    rank = {place: r for r, place in enumerate(places)}
    at = logits[0].double()  # [places, V]
    chosen = [(rank[s.place], s.new, s.old) for mutant in mutants for s in mutant.substitutions]
    r, new, old = torch.tensor(chosen, device=at.device).T
    return _sums((at[r, new] - at[r, old]).tolist(), mutants)


def pll_differences(
    model: MaskedLM, wild_type: Sequences, mutants: Sequence[Mutant], observe: Observe = lambda rows: None
) -> Iterator[float]:
    """One number a mutant, in order, as the work goes on; `wild_type` is one row."""
    table = _Terms(model, wild_type, mutants, observe)
    of_wild_type = math.fsum(table.values([()])[0])
    at_once = max(1, _ROWS_AT_ONCE // len(table.tokens))
    for start in range(0, len(mutants), at_once):
        for terms in table.values([_change(mutant) for mutant in mutants[start : start + at_once]]):
            yield math.fsum(terms) - of_wild_type


class _Terms:
    """log p_t of every token of mutants; a row that several mutants need is evaluated once."""

    def __init__(self, model: MaskedLM, wild_type: Sequences, mutants: Sequence[Mutant], observe: Observe) -> None:
        self._model, self._wild_type, self._observe = model, wild_type, observe
        self._free = free_in_order(wild_type)[0]
        self.tokens: list[int] = wild_type.tokens[0, self._free].tolist()
        self._shared: dict[_Key, set[int]] = {((), t): {token} for t, token in enumerate(self.tokens)}
        for mutant in mutants:
            for t, new in _change(mutant):
                self._shared.setdefault((_without(_change(mutant), t), t), {self.tokens[t]}).add(new)
        self._known: dict[tuple[_Key, int], float] = {}

    def values(self, changes: list[_Change]) -> list[list[float]]:
        """[n] terms of the PLL of each mutant."""
        asked = [[((_without(change, t), t), dict(change).get(t, self.tokens[t])) for t in range(len(self.tokens))]
                 for change in changes]  # fmt: skip
        keys = dict.fromkeys(key for one in asked for key, token in one if (key, token) not in self._known)
        found = self._evaluate(list(keys))
        self._known |= {entry: value for entry, value in found.items() if entry[0] in self._shared}
        return [[self._known[e] if e in self._known else found[e] for e in one] for one in asked]

    def _evaluate(self, keys: list[_Key]) -> dict[tuple[_Key, int], float]:
        """log p of the tokens that are wanted at each key: one row a key."""
        chains = {change: chain for chain, change in enumerate(dict.fromkeys(change for change, _ in keys))}
        sequences = self._changed(list(chains))
        chain = torch.tensor([chains[change] for change, _ in keys], dtype=torch.long, device=self._free.device)
        place = torch.tensor([t for _, t in keys], dtype=torch.long, device=self._free.device)
        at = self._free[place][:, None]
        out: dict[tuple[_Key, int], float] = {}
        for index, logits in batches(self._model, sequences, Rows(chain, at, at)):
            wanted = [(row, keys[i], token) for row, i in enumerate(index.tolist()) for token in self._wanted(keys[i])]
            rows, tokens = torch.tensor([(row, token) for row, _, token in wanted], device=at.device).T
            terms = -NORM.term(logits[rows, 0], tokens)
            out |= {(key, token): value for (_, key, token), value in zip(wanted, terms.tolist(), strict=True)}
            self._observe(len(index))
        return out

    def _wanted(self, key: _Key) -> set[int]:
        return self._shared.get(key, {self.tokens[key[1]]})

    def _changed(self, changes: list[_Change]) -> Sequences:
        """One row a change."""
        rows = self._wild_type.rows(torch.zeros(len(changes), dtype=torch.long, device=self._free.device))
        tokens = rows.tokens.clone()
        for chain, change in enumerate(changes):
            for t, new in change:
                tokens[chain, self._free[t]] = new
        return Sequences(tokens, rows.free, rows.attention, rows.source)


@dataclass(frozen=True, eq=False)
class Profile:
    """How sure a model is of each of n positions. entropy: [n] nats, of the softmax over the whole vocabulary;
    log_probabilities: [n] of what stands there; likeliest: [n, k] token ids, likeliest first, and their p [n, k]."""

    entropy: Tensor
    log_probabilities: Tensor
    likeliest: Tensor
    probabilities: Tensor


def profile(
    model: MaskedLM, sequence: Sequences, among: Tensor, most: int = 5, observe: Observe = lambda rows: None
) -> Profile:
    """Entropies and likeliest tokens of `among` [V] bool at the free positions of one row: n model rows."""
    rows = single_mask_rows(sequence)
    most = min(most, int(among.sum()))
    shape = (len(rows), most)
    entropy, at_truth = torch.empty(2, len(rows), dtype=torch.float64)
    likeliest, shares = torch.empty(shape, dtype=torch.long), torch.empty(shape, dtype=torch.float64)
    truth = sequence.tokens[0, rows.asked[:, 0]]
    for index, logits in batches(model, sequence, rows):
        log_p = logits[:, 0].double().log_softmax(-1)
        p, put = log_p.exp(), index.cpu()
        entropy[put] = -torch.where(p > 0, p * log_p, 0.0).sum(-1).cpu()
        at_truth[put] = log_p.gather(1, truth[index][:, None])[:, 0].cpu()
        best = p.masked_fill(~among, -1.0).topk(most, dim=-1)
        likeliest[put], shares[put] = best.indices.cpu(), best.values.cpu()
        observe(len(index))
    return Profile(entropy, at_truth, likeliest, shares)


def rows_needed(tokens: int, mutants: Sequence[Mutant], method: str) -> int:
    """Model rows that a method takes on a sequence of `tokens` free tokens."""
    if method == "masked-marginals":
        return len({_places(mutant) for mutant in mutants})
    if method == "wt-marginals":
        return 1
    changes = {_change(mutant) for mutant in mutants} | {()}
    own = sum(tokens - len(change) for change in changes)
    keys = {(_without(change, t), t) for change in changes for t, _ in change}
    return own + sum(change not in changes for change, _ in keys)


def _places(mutant: Mutant) -> tuple[int, ...]:
    return tuple(s.place for s in mutant.substitutions)


def _change(mutant: Mutant) -> _Change:
    return tuple((s.place, s.new) for s in mutant.substitutions if s.new != s.old)


def _without(change: _Change, place: int) -> _Change:
    return tuple((t, new) for t, new in change if t != place)


def _log_odds(logits: Tensor, mutants: list[list[Mutant]]) -> list[float]:
    """Scores of the mutants of each row, rows after one another; `logits` [N, K, V] at their K places."""
    listed = [(row, mutant) for row, some in enumerate(mutants) for mutant in some]
    row = torch.tensor([row for row, _ in listed], device=logits.device)
    new = torch.tensor([[s.new for s in mutant.substitutions] for _, mutant in listed], device=logits.device)
    old = torch.tensor([[s.old for s in mutant.substitutions] for _, mutant in listed], device=logits.device)
    k = torch.arange(logits.shape[1], device=logits.device)
    at = logits.double()
    found: list[float] = (at[row[:, None], k, new] - at[row[:, None], k, old]).sum(1).tolist()
    return found


def _sums(terms: list[float], mutants: Sequence[Mutant]) -> list[float]:
    """Sums over the substitutions of each mutant, given those of all mutants after one another."""
    out, start = [], 0
    for mutant in mutants:
        stop = start + len(mutant.substitutions)
        out.append(math.fsum(terms[start:stop]))
        start = stop
    return out
