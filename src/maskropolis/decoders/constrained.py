"""Starts under hard constraints: required words are put in place, then blanks are filled one by one from left to right.

Each token is one that the constraints allow given what stands already; mask tokens satisfy and violate nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.models.protocol import MaskedLM
from maskropolis.randomness import draw
from maskropolis.sequences import Sequences
from maskropolis.targets.conditionals import free_in_order
from maskropolis.targets.constraints.words import Word
from maskropolis.targets.energy import conditionals_at
from maskropolis.targets.steered import SteeredEnergy, allowed_at


def fill_constrained(
    model: MaskedLM, energy: SteeredEnergy, sequences: Sequences, how: str, uniforms: Tensor
) -> Sequences:
    """As `decoders.fill.fill`, within the support of `energy`; one model row a blank. Raises `InputError` where no
    filling is found."""
    if not bool((sequences.free & (sequences.tokens == model.mask_token)).any()):
        return sequences
    words = [part for part in energy.constraints.parts if isinstance(part, Word) and part.required]
    for number, word in enumerate(words):
        sequences = _with_word(model, energy, sequences, word, (number + 0.5) / len(words))
    for t in free_in_order(sequences).T:
        index = (sequences.free.gather(1, t[:, None])[:, 0] & (sequences.tokens_at(t) == model.mask_token)).nonzero()
        if len(index):
            sequences = _filled_at(model, energy, sequences, index[:, 0], t[index[:, 0]], how, uniforms)
    return sequences


def _filled_at(
    model: MaskedLM, energy: SteeredEnergy, sequences: Sequences, index: Tensor, t: Tensor, how: str, uniforms: Tensor
) -> Sequences:
    """The chains `index` [K] with one blank, at `t` [K], filled."""
    some = sequences.rows(index)
    allowed = allowed_at(energy, model, some, t)
    stuck = (~allowed.any(1)).nonzero()[:, 0].tolist()
    if stuck:
        raise InputError(
            f"no token can stand at position {int(t[stuck[0]])} of chain {int(index[stuck[0]])} under the constraints "
            f"{', '.join(energy.constraints.names)}; relax one, or make the text longer"
        )
    if how == "random":
        scores = torch.zeros(allowed.shape, dtype=torch.float64, device=allowed.device)
    else:
        scores = conditionals_at(model, some, t).double()
    scores = scores.masked_fill(~allowed, -torch.inf)
    token = scores.argmax(-1) if how == "greedy" else draw(scores, uniforms[index, t])
    filled = some.with_tokens(t, token).tokens
    return Sequences(
        sequences.tokens.index_copy(0, index, filled), sequences.free, sequences.attention, sequences.source
    )


def _with_word(model: MaskedLM, energy: SteeredEnergy, sequences: Sequences, word: Word, where: float) -> Sequences:
    """Each chain without the required word gets it over blanks, at the share `where` of the places that can take it."""
    for chain in (~word.standing(sequences).any(1)).nonzero()[:, 0].tolist():
        row = sequences.rows(torch.tensor([chain], device=sequences.device))
        places = _places(model, energy, row, word)
        if not places:
            raise InputError(
                f"chain {chain} has no place for the required word '{word.word}': expected blanks in a row for its "
                f"{min(map(len, word.spellings))} token(s), or the word in the text itself"
            )
        tokens = sequences.tokens.clone()
        tokens[chain] = places[int(where * len(places))]
        sequences = Sequences(tokens, sequences.free, sequences.attention, sequences.source)
    return sequences


def _places(model: MaskedLM, energy: SteeredEnergy, row: Sequences, word: Word) -> list[Tensor]:
    """The tokens [T] of `row` with the word at every place where blanks take it, in the first spelling that fits."""
    blank = (row.free & (row.tokens == model.mask_token))[0]
    for spelling in word.spellings:
        found, long = [], len(spelling)
        for start in range(row.width - long + 1):
            if not bool(blank[start : start + long].all()):
                continue
            tokens = row.tokens.clone()
            tokens[0, start : start + long] = torch.tensor(spelling, device=tokens.device)
            put = Sequences(tokens, row.free, row.attention, row.source)
            if bool(word.standing(put).any()) and _fits(model, energy, put, start, long):
                found.append(tokens[0])
        if found:
            return found
    return []


def _fits(model: MaskedLM, energy: SteeredEnergy, row: Sequences, start: int, long: int) -> bool:
    """Whether constraints other than required words allow what stands at the `long` positions from `start`."""
    others = [p for p in energy.constraints.parts if not (isinstance(p, Word) and p.required)]
    for t in range(start, start + long):
        at = torch.tensor([t], device=row.device)
        if not all(bool(part.allowed(row, at)[0, row.tokens[0, t]]) for part in others):
            return False
    return True


def require_supported(energy: SteeredEnergy, sequences: Sequences, chains: Tensor) -> None:
    """Raises `InputError` for a start outside the support, naming what it breaks, and for an infinite expert.

    `chains` [C] is the run's index of each row.
    """
    texts = energy.decode(sequences)
    for part in energy.constraints.parts:
        broken = (~part.holds(sequences, texts)).nonzero()[:, 0].tolist()
        if broken:
            raise InputError(
                f"the start of chain {chains[broken[0]]} breaks the constraint {part.name}: {texts[broken[0]][:60]!r}; "
                "expected a start for which it holds, or blanks to fill"
            )
    forbidden = (energy.offset(sequences) == torch.inf).nonzero()[:, 0].tolist()
    if forbidden:
        raise InputError(f"an expert forbids the start of chain {chains[forbidden[0]]}: {texts[forbidden[0]][:60]!r}")


def require_movable(model: MaskedLM, energy: SteeredEnergy, sequences: Sequences, chains: Tensor) -> None:
    """Raises `InputError` for a chain in which no free position can take another token than it has; see
    `require_supported`."""
    if not len(energy.constraints):
        return
    stuck = torch.ones(len(sequences), dtype=torch.bool, device=sequences.device)
    for t in free_in_order(sequences).T:
        index = (stuck & sequences.free.gather(1, t[:, None])[:, 0]).nonzero()[:, 0]
        if not len(index):
            continue
        stuck[index] = allowed_at(energy, model, sequences.rows(index), t[index]).sum(1) < 2
    if bool(stuck.any()):
        chain = int(chains[int(stuck.nonzero()[0, 0])])
        raise InputError(
            f"chain {chain} cannot move: the constraints {', '.join(energy.constraints.names)} leave every free token "
            "no choice; relax one, or make the text longer"
        )
