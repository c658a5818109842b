"""From bound sources to translations: candidate lengths side by side, starts, Mask-Predict or a search by chains, and
the choice among what they found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from maskropolis.decoders.fill import FILLS, fill
from maskropolis.decoders.mask_predict import Filled, mask_predict
from maskropolis.decoders.one_by_one import fill_one_by_one
from maskropolis.errors import InputError, unknown_name
from maskropolis.kernels.base import Kernel, adapting_steps
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.conditional.protocol import Bound
from maskropolis.randomness import START, Streams
from maskropolis.searching.modes import Modes, Search, find_modes
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import MaskedEnergy, energy_by_name

DECODERS = ("mask-predict", "mh", "gibbs")
STARTS = ("mask-predict", "masks", *FILLS, "given")
CHOICES = ("per-token", "total", "joint")
MOST_LENGTHS = 64  # chains of one source are numbered line · 64 + rank of the length


@dataclass(frozen=True)
class Decoding:
    """How to translate.

    Attributes:
        decoder: `mask-predict`, `mh` (the kernel below) or `gibbs` (the degenerate sampler).
        iterations: of Mask-Predict, as decoder or as start.
        length_beam: how many of the likeliest lengths are tried.
        start: where chains begin; `given` are hypotheses, one a source.
        kernel: specification of the kernel of `mh`, e.g. `block:k=2`.
        energy: `raw` or `norm`.
        search: sweeps, temperatures, and which states to remember.
        choose: energies of different lengths are compared `per-token`, in `total`, or `joint` with the probability of
            the length, (E(y|x) − log p(N|x)) / N.
        with_energy: compute the energy of Mask-Predict's translations too.
        seed: of the chains.
    """

    decoder: str = "mask-predict"
    iterations: int = 10
    length_beam: int = 3
    start: str = "mask-predict"
    kernel: str = "single-site"
    energy: str = "norm"
    search: Search = field(default_factory=Search)
    choose: str = "per-token"
    with_energy: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for kind, name, known in (
            ("decoder", self.decoder, DECODERS), ("start", self.start, STARTS), ("choice", self.choose, CHOICES)
        ):  # fmt: skip
            if name not in known:
                raise unknown_name(kind, name, known)
        if not 1 <= self.length_beam <= MOST_LENGTHS:
            raise InputError(f"a length beam of {self.length_beam} is out of range; expected 1 to {MOST_LENGTHS}")
        if self.iterations < 1:
            raise InputError(f"{self.iterations} iterations are too few; expected at least 1")
        self.make_kernel()

    def make_energy(self) -> MaskedEnergy:
        return energy_by_name(self.energy)

    def make_kernel(self) -> Kernel:
        """The kernel of the search. Raises `InputError`."""
        kernel = build_kernel("gibbs" if self.decoder == "gibbs" else self.kernel, self.make_energy())
        if adapting_steps(kernel):
            raise InputError("a search has no burn-in in which a ladder could adapt; leave adapt away")
        return kernel

    def signature(self) -> str:
        """Everything that decides the translations, as `key:value|…`."""
        parts: dict[str, Any] = {"decoder": f"{self.decoder}({self.iterations})", "lengths": self.length_beam}
        if self.decoder != "mask-predict":
            schedule = self.search.schedule(2)
            falling = f"{schedule.shape}({schedule.start:g}→{schedule.last:g})"
            warm = f"{schedule.start:g}" if schedule.constant else falling
            start = f"mask-predict({self.iterations})" if self.start == "mask-predict" else self.start
            parts = {
                "decoder": self.decoder, "lengths": self.length_beam, "start": start,
                "kernel": self.make_kernel().signature(), "energy": self.energy, "temperature": warm,
                "sweeps": f"{self.search.sweeps:g}", "answer": "lowest" if self.search.lowest else "last",
                "choose": self.choose, "seed": self.seed,
            }  # fmt: skip
            if self.search.samples:
                parts["samples"] = f"{self.search.samples}({self.search.thin:g} sweeps apart)"
        if self.search.n_best > 1:
            parts["n-best"] = self.search.n_best
        return "|".join(f"{key}:{value}" for key, value in parts.items())


@dataclass(frozen=True)
class Hypothesis:
    """Target tokens with their energy (None if it was not computed) and, from Mask-Predict, mean log-probability."""

    tokens: tuple[int, ...]
    energy: float | None = None
    score: float | None = None

    @property
    def energy_per_token(self) -> float | None:
        return None if self.energy is None else self.energy / max(1, len(self.tokens))


@dataclass
class Work:
    """What decoding cost: sources, model rows, steps in which a chain accepted, in which it accepted another state than
    its own, and all steps."""

    sources: int = 0
    rows: int = 0
    accepted: int = 0
    moved: int = 0
    proposed: int = 0

    def add(self, other: Work) -> None:
        for name in ("sources", "rows", "accepted", "moved", "proposed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def acceptance(self) -> float | None:
        return self.accepted / self.proposed if self.proposed else None

    @property
    def mobility(self) -> float | None:
        """The share of steps that changed a token: a proposal of the present token is accepted, but moves nothing."""
        return self.moved / self.proposed if self.proposed else None


@dataclass
class Found:
    """Of each source: hypotheses, the answer first, and samples; and what they cost."""

    best: list[list[Hypothesis]]
    samples: list[list[Hypothesis]]
    work: Work


OnSweep = Callable[[int, int, Hypothesis], None]
"""(source, sweeps made, where the chain of its likeliest length is)."""


def decode(
    bound: Bound,
    lines: Sequence[int],
    decoding: Decoding,
    given: Sequence[Sequence[int]] | None = None,
    on_sweep: OnSweep | None = None,
) -> Found:
    """Translate all sources that `bound` is bound to; `lines` number them in the whole job and key their chains.

    `given`: a hypothesis for each source, for `start="given"`.
    """
    if (decoding.start == "given") != (given is not None) and decoding.decoder != "mask-predict":
        raise InputError("hypotheses are needed for the start 'given', and for no other")
    work = Work(sources=len(lines))
    if decoding.decoder == "mask-predict":
        return _by_mask_predict(bound, decoding, work)
    if given is not None:
        owner, rank, targets = list(range(len(given))), [0] * len(given), [list(tokens) for tokens in given]
        sequences = bound.rows(owner, targets)
    else:
        owner, rank, lengths = _candidates(bound, decoding.length_beam)
        chains = [lines[source] * MOST_LENGTHS + r for source, r in zip(owner, rank, strict=True)]
        sequences, used = start(bound, owner, lengths, decoding, chains)
        work.rows += used
    keys = torch.tensor([lines[source] * MOST_LENGTHS + r for source, r in zip(owner, rank, strict=True)])
    watch = None if on_sweep is None else _watcher(bound, owner, rank, on_sweep)
    modes = find_modes(
        bound, decoding.make_kernel(), decoding.make_energy(), sequences, keys, decoding.search, decoding.seed, watch
    )
    work.add(Work(0, modes.rows, modes.accepted, modes.moved, modes.proposed))
    return _chosen(bound, modes, owner, decoding, work)


def start(
    bound: Bound, owner: Sequence[int], lengths: Sequence[int], decoding: Decoding, chains: Sequence[int]
) -> tuple[Sequences, int]:
    """(rows that chains begin from, model rows that they cost); one row for each (source, predicted length)."""
    if decoding.start == "mask-predict":
        filled = _filled(bound, owner, lengths, decoding.iterations)
        return bound.rows(owner, bound.targets(filled.sequences)), filled.rows
    masks = [[bound.mask_token] * max(1, length - bound.end_counted) for length in lengths]
    blank = bound.rows(owner, masks)
    streams = Streams(decoding.seed, chains, START)
    if decoding.start == "masks":
        uniforms = streams.uniforms(0, 2 * blank.width, bound.device)
        return fill_one_by_one(bound, blank, uniforms), int(blank.free_counts.sum())
    used = 0 if decoding.start == "random" else len(blank)
    return fill(bound, blank, decoding.start, streams.uniforms(0, blank.width, bound.device)), used


def _candidates(bound: Bound, beam: int) -> tuple[list[int], list[int], list[int]]:
    """Source, rank and length of every candidate, source by source."""
    found = [
        (source, rank, length)
        for source, lengths in enumerate(bound.predicted_lengths(beam))
        for rank, length in enumerate(dict.fromkeys(lengths))
    ]
    owner, rank, length = zip(*found, strict=True)
    return list(owner), list(rank), list(length)


def _filled(bound: Bound, owner: Sequence[int], lengths: Sequence[int], iterations: int) -> Filled:
    """Mask-Predict; where nothing stands before a predicted end, once more without one."""
    blank = bound.blank(owner, lengths)
    filled = mask_predict(bound, blank, iterations, bound.decodable)
    empty = [i for i, tokens in enumerate(bound.targets(filled.sequences)) if not tokens]
    if not empty:
        return filled
    index = torch.tensor(empty, device=blank.device)
    again = mask_predict(bound, blank.rows(index), iterations, bound.allowed)
    tokens = filled.sequences.tokens.index_copy(0, index, again.sequences.tokens)
    scores = filled.log_probabilities.index_copy(0, index, again.log_probabilities)
    sequences = Sequences(tokens, blank.free, blank.attention, blank.source)
    return Filled(sequences, scores, filled.rows + again.rows)


def _by_mask_predict(bound: Bound, decoding: Decoding, work: Work) -> Found:
    owner, _, lengths = _candidates(bound, decoding.length_beam)
    filled = _filled(bound, owner, lengths, decoding.iterations)
    work.rows += filled.rows
    targets, scores = bound.targets(filled.sequences), filled.average.tolist()
    energies: list[float | None] = [None] * len(targets)
    if decoding.with_energy:
        evaluation = decoding.make_energy().evaluate(bound, bound.rows(owner, targets))
        work.rows += evaluation.rows
        energies = list(evaluation.energy.tolist())
    best: list[list[Hypothesis]] = [[] for _ in range(max(owner) + 1)]
    for source, tokens, score, energy in zip(owner, targets, scores, energies, strict=True):
        best[source].append(Hypothesis(tuple(tokens), energy, score))
    for found in best:
        found.sort(key=lambda h: -(h.score if h.score is not None else 0.0))
    return Found([found[: decoding.search.n_best] for found in best], [[] for _ in best], work)


def _chosen(bound: Bound, modes: Modes, owner: Sequence[int], decoding: Decoding, work: Work) -> Found:
    """Of each source: the answers of its chains (or their n-best lists), best first, and their samples."""
    found: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in range(max(owner) + 1)]
    samples: list[list[Hypothesis]] = [[] for _ in found]
    answers = bound.targets(modes.sequences)
    for chain, source in enumerate(owner):
        answer = Hypothesis(tuple(answers[chain]), float(modes.energy[chain]))
        listed = [_of_row(bound, modes.sequences, chain, row, energy) for energy, row in modes.n_best[chain]]
        for hypothesis in [answer, *listed]:
            found[source].setdefault(hypothesis.tokens, hypothesis)
        samples[source] += [_of_row(bound, modes.sequences, chain, row, energy) for energy, row in modes.samples[chain]]
    best = [_ranked(bound, source, list(one.values()), decoding) for source, one in enumerate(found)]
    return Found(best, samples, work)


def _ranked(bound: Bound, source: int, found: list[Hypothesis], decoding: Decoding) -> list[Hypothesis]:
    """The n-best hypotheses of one source."""
    lengths = [len(h.tokens) + bound.end_counted for h in found]
    joint = decoding.choose == "joint"
    extra = bound.length_scores([source] * len(found), lengths) if joint else [0.0] * len(found)
    divisors = [1 if decoding.choose == "total" else max(1, len(h.tokens)) for h in found]
    values = [((h.energy or 0.0) - e) / d for h, e, d in zip(found, extra, divisors, strict=True)]
    order = sorted(range(len(found)), key=lambda i: values[i])
    return [found[i] for i in order[: decoding.search.n_best]]


def _of_row(bound: Bound, sequences: Sequences, chain: int, row: tuple[int, ...], energy: float) -> Hypothesis:
    width = len(row)
    one = Sequences(
        torch.tensor([row]), sequences.free[chain : chain + 1, :width].cpu(),
        sequences.attention[chain : chain + 1, :width].cpu(),
    )  # fmt: skip
    return Hypothesis(tuple(bound.targets(one)[0]), energy)


def _watcher(
    bound: Bound, owner: Sequence[int], rank: Sequence[int], on_sweep: OnSweep
) -> Callable[[int, Tensor, Sequences, Tensor], None]:
    def watch(sweep: int, index: Tensor, sequences: Sequences, energy: Tensor) -> None:
        targets = bound.targets(sequences)
        for row, chain in enumerate(index.tolist()):
            if rank[chain] == 0:
                on_sweep(owner[chain], sweep, Hypothesis(tuple(targets[row]), float(energy[row])))

    return watch
