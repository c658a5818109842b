"""Shortcuts change what a step costs, never where it goes: same uniforms, same chain, also as a plain textbook loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from exactness_cases import VARIANTS, Variant

from maskropolis.kernels import KERNELS, Kernel
from maskropolis.kernels.proposal import MaskedProposal
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.forward import rows as model_rows
from maskropolis.models.forward.differentiable import ROWS
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences, concatenate
from maskropolis.targets.energy import ENERGIES

STEPS = 60
FREE = ([True, True, False, True, True], [True, False, True, True])


@pytest.fixture(autouse=True)
def _full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with gradients share a forward pass as others do: tables need no room for the way back."""
    monkeypatch.setattr(model_rows, "WITH_GRADIENT", 1.0)


def _model(seed: int = 0, spread: float = 2.0) -> TabularMaskedLM:
    model = TabularMaskedLM.random(3, [4, 5, 3], seed, spread)  # 3 only for kernels that change the length
    model.budget.tokens = 24  # several forward passes in every evaluation
    return model


def _start(chains: int = 6) -> Sequences:
    """Chains of two lengths, with context."""
    free = [FREE[c % 2] for c in range(chains)]
    return Sequences.from_lists([[(c + t) % 3 for t in range(len(f))] for c, f in enumerate(free)], free)


def _run(model: TabularMaskedLM, kernel: Kernel, start: Sequences, chains: list[int], temperature: float = 0.8):
    """Tokens [STEPS, C, T], accepted [STEPS, C], energies [STEPS, C], rows [STEPS]."""
    streams, state = Streams(11, chains), kernel.init(model, start)
    tokens, accepted, energies, rows = [], [], [], []
    for step in range(STEPS):
        state, info = kernel.step(model, state, temperature, streams.uniforms(step, kernel.uniforms_per_step))
        assert state.step == step + 1
        tokens.append(state.sequences.tokens)
        accepted.append(info.accepted)
        energies.append(state.energy)
        rows.append(info.rows)
    return torch.stack(tokens), torch.stack(accepted), torch.stack(energies), torch.tensor(rows)


class Textbook:
    """Metropolis–Hastings on one chain as a textbook has it: every number computed anew, in plain Python."""

    def __init__(self, model: TabularMaskedLM, free: list[bool], energy: str, temperature: float) -> None:
        self.model, self.free = model, [t for t, may in enumerate(free) if may]
        self.energy_name, self.temperature = energy, temperature
        self.known: dict[tuple[int, ...], float] = {}

    def conditional(self, tokens: list[int], masked: list[int], at: int) -> np.ndarray:
        row = torch.tensor([[self.model.mask_token if t in masked else w for t, w in enumerate(tokens)]])
        yes = torch.ones_like(row, dtype=torch.bool)
        return self.model.logits(Sequences(row, yes, yes), torch.tensor([[at]]))[0, 0].numpy()

    def energy(self, tokens: list[int]) -> float:
        if tuple(tokens) not in self.known:
            self.known[tuple(tokens)] = self._energy(tokens)
        return self.known[tuple(tokens)]

    def _energy(self, tokens: list[int]) -> float:
        total = 0.0
        for t in self.free:
            logits = self.conditional(tokens, [t], t)
            total -= logits[tokens[t]] - (np.log(np.exp(logits).sum()) if self.energy_name == "norm" else 0.0)
        return total

    def proposal(self, tokens: list[int], masked: list[int], at: int, temperature=1.0, top_k=None) -> np.ndarray:
        weights = np.exp(self.conditional(tokens, masked, at)[: self.model.mask_token] / temperature)
        if top_k is not None:
            weights[np.argsort(weights)[: len(weights) - top_k]] = 0
        return weights / weights.sum()

    def decide(self, old: list[int], new: list[int], forward: float, backward: float, u: float) -> list[int]:
        target = math.exp(-(self.energy(new) - self.energy(old)) / self.temperature)
        return new if u < target * backward / forward else old


def _category(probabilities: np.ndarray, u: float) -> int:
    return int(np.searchsorted(np.cumsum(probabilities), u, side="right"))


def single_site(book: Textbook, x: list[int], u: list[float], **settings) -> list[int]:
    t = book.free[int(u[0] * len(book.free))]
    q = book.proposal(x, [t], t, **settings)
    new = [*x[:t], _category(q, u[1]), *x[t + 1 :]]
    return book.decide(x, new, q[new[t]], q[x[t]], u[2])


def block(book: Textbook, x: list[int], u: list[float], k: int, **settings) -> list[int]:
    order = list(book.free)
    for j in range(k):
        other = j + int(u[j] * (len(order) - j))
        order[j], order[other] = order[other], order[j]
    new, forward, backward = list(x), 1.0, 1.0
    for j, t in enumerate(order[:k]):
        q = book.proposal(x, order[:k], t, **settings)
        new[t] = _category(q, u[k + j])
        forward, backward = forward * q[new[t]], backward * q[x[t]]
    return book.decide(x, new, forward, backward, u[2 * k])


def path(book: Textbook, x: list[int], u: list[float], k: int, **settings) -> list[int]:
    order = list(book.free)
    for j in range(k):
        other = j + int(u[j] * (len(order) - j))
        order[j], order[other] = order[other], order[j]
    forward, backward, now = 1.0, 1.0, list(x)
    for j, t in enumerate(order[:k]):
        q = book.proposal(now, [t], t, **settings)
        new = _category(q, u[k + j])
        forward, backward = forward * q[new], backward * q[now[t]]
        now[t] = new
    return book.decide(x, now, forward, backward, u[2 * k])


def pairs(book: Textbook, x: list[int], temperature=1.0, top_k=None) -> np.ndarray:
    """exp(−(E(x with w at t) − E(x)) / 2ττ_q) [n, V−1], 0 for what is no move: for a table the gradient is exact."""
    found = np.zeros((len(book.free), book.model.mask_token))
    for j, t in enumerate(book.free):
        q = book.proposal(x, [t], t, top_k=top_k)
        for w in range(book.model.mask_token):
            if w != x[t] and q[w] > 0 and q[x[t]] > 0:
                change = book.energy([*x[:t], w, *x[t + 1 :]]) - book.energy(x)
                found[j, w] = math.exp(-change / (2 * book.temperature * temperature))
    return found


def gwg(book: Textbook, x: list[int], u: list[float], **settings) -> list[int]:
    weights = pairs(book, x, **settings)
    if weights.sum() == 0:
        return x
    j = _category(weights.sum(1) / weights.sum(), u[0])
    t, w = book.free[j], _category(weights[j] / weights[j].sum(), u[1])
    new = [*x[:t], w, *x[t + 1 :]]
    back = pairs(book, new, **settings)
    return book.decide(x, new, weights[j, w] / weights.sum(), back[j, x[t]] / back.sum(), u[2])


def discrete_langevin(book: Textbook, x: list[int], u: list[float], step_size: float, **settings) -> list[int]:
    def factors(y: list[int]) -> np.ndarray:
        found = pairs(book, y, **settings) * math.exp(-1 / step_size)
        for j, t in enumerate(book.free):
            found[j, y[t]] = 1
        return found / found.sum(1, keepdims=True)

    new, forth = list(x), factors(x)
    for j, t in enumerate(book.free):
        new[t] = _category(forth[j], u[1 + j])
    back, every = factors(new), range(len(book.free))
    forward = math.prod(forth[j, new[book.free[j]]] for j in every)
    return book.decide(x, new, forward, math.prod(back[j, x[book.free[j]]] for j in every), u[-1])


TEXTBOOK = {
    "single-site": (single_site, {}),
    "block": (block, {"k": 2}),
    "path": (path, {"k": 3}),
    "gwg": (gwg, {}),
    "discrete-langevin": (discrete_langevin, {"step_size": 1.5}),
}


@pytest.mark.parametrize("energy", ["raw", "norm"])
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.6}, {"top_k": 2}], ids=str)
@pytest.mark.parametrize("name", TEXTBOOK)
def test_kernels_give_the_chain_of_a_textbook_loop(name: str, settings: dict, energy: str) -> None:
    loop, fixed = TEXTBOOK[name]
    model, start = _model(), _start()
    kernel = build_kernel(name, ENERGIES[energy], **fixed, proposal=MaskedProposal(**settings))
    tokens, *_ = _run(model, kernel, start, list(range(6)))
    for chain in range(6):
        length = int(start.lengths[chain])
        book = Textbook(model, FREE[chain % 2], energy, temperature=0.8)
        x, streams = start.tokens[chain, :length].tolist(), Streams(11, [chain])
        for step in range(STEPS):
            x = loop(book, x, streams.uniforms(step, kernel.uniforms_per_step)[0].tolist(), **fixed, **settings)
            assert tokens[step, chain, :length].tolist() == x


SHORTCUTS = [
    ("single-site", "keep_conditionals"),
    ("single-site", "reuse_row"),
    ("single-site", "early_rejection"),
    ("single-site:scan=back-and-forth", "early_rejection"),
    ("block", "early_rejection"),
    ("path:k=3", "early_rejection"),
    ("path:k=2,contiguous=yes", "early_rejection"),
    ("delayed:kernel=single-site", "early_rejection"),
    ("delayed:kernel=path(k=2)", "early_rejection"),
    ("staged:kernel=single-site,terms=0", "early_rejection"),
]


@pytest.mark.parametrize("energy", ["raw", "norm"])
@pytest.mark.parametrize(("specification", "switch"), SHORTCUTS, ids=str)
def test_shortcuts_give_the_same_chain(specification: str, switch: str, energy: str) -> None:
    saved = 0
    for seed in range(3):
        kernels = [Variant(specification).build(energy, **{switch: on}) for on in (True, False)]
        quick, plain = (_run(_model(seed), kernel, _start(), list(range(6))) for kernel in kernels)
        assert torch.equal(quick[0], plain[0]) and torch.equal(quick[1], plain[1])
        assert torch.allclose(quick[2], plain[2], atol=1e-10)
        assert bool((quick[3] <= plain[3]).all())
        saved += int((plain[3] - quick[3]).sum())
    assert saved > 0 or (switch == "early_rejection" and energy == "raw")


def _keeps_conditionals(name: str) -> bool:
    state = Variant(name).build("norm").init(_model(), _start())
    return state.evaluation is not None and state.evaluation.conditionals is not None


@pytest.mark.parametrize("name", [name for name in KERNELS if _keeps_conditionals(name)])
def test_a_small_memory_budget_gives_the_same_chain(name: str) -> None:
    kernel = Variant(name).build("norm")
    tight = _model()
    tight.budget.conditionals = 10
    assert kernel.init(tight, _start()).evaluation.conditionals is None
    roomy, small = (_run(model, kernel, _start(), list(range(6))) for model in (_model(), tight))
    assert torch.equal(roomy[0], small[0])
    assert small[3].sum() > roomy[3].sum()


@pytest.mark.parametrize("tokens", [4, 13])
def test_a_small_token_budget_gives_the_same_chain(tokens: int) -> None:
    kernel = Variant("single-site").build("norm")
    small = _model()
    small.budget.tokens = tokens
    assert torch.equal(
        _run(_model(), kernel, _start(), list(range(6)))[0], _run(small, kernel, _start(), list(range(6)))[0]
    )


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_chains_do_not_depend_on_how_they_are_split_into_batches(variant: Variant) -> None:
    kernel, model, start = variant.build("norm"), _model(), _start()
    together = _run(model, kernel, start, list(range(6)))[0]
    for part in ([0], [1, 4], [5, 3, 2]):
        alone = _run(model, kernel, start.rows(torch.tensor(part)).trimmed(), part)[0]
        assert torch.equal(together[:, part, : alone.shape[2]], alone)


def test_kept_energies_and_terms_stay_those_of_the_state() -> None:
    for variant in VARIANTS:
        kernel, model, start = variant.build("raw"), _model(), _start()
        if kernel.init(model, start).evaluation is None:
            continue
        streams, state = Streams(2, range(6)), kernel.init(model, start)
        for step in range(20):
            state, _ = kernel.step(model, state, 1.0, streams.uniforms(step, kernel.uniforms_per_step))
        fresh = kernel.energy.evaluate(model, state.sequences, keep=True)
        assert torch.allclose(state.energy, fresh.energy, atol=1e-10)
        assert torch.allclose(state.evaluation.terms, fresh.terms, atol=1e-10)
        if state.evaluation.conditionals is not None:
            assert torch.allclose(state.evaluation.conditionals.logits, fresh.conditionals.logits, atol=1e-10)


def test_rows_are_counted_as_the_model_sees_them() -> None:
    class Counting(TabularMaskedLM):
        seen = 0

        def logits(self, sequences: Sequences, positions: torch.Tensor) -> torch.Tensor:
            self.seen += len(sequences)
            return super().logits(sequences, positions)

        def logits_and_slopes(self, sequences: Sequences, *rest) -> tuple[torch.Tensor, torch.Tensor]:
            self.seen += ROWS * len(sequences)  # forward, and a backward pass that counts as two
            return super().logits_and_slopes(sequences, *rest)

    for variant in VARIANTS:
        plain = _model()
        model = Counting(plain.tables, plain.vocabulary_size)
        kernel, start = variant.build("norm"), _start()
        state, streams = kernel.init(model, start), Streams(4, range(6))
        for step in range(20):
            before = model.seen
            state, info = kernel.step(model, state, 1.0, streams.uniforms(step, kernel.uniforms_per_step))
            assert info.rows == model.seen - before, variant


def test_an_infinite_or_impossible_move_is_never_accepted() -> None:
    """Token 2 has logit −inf at every position: E is infinite there and no proposal leads back."""
    plain = _model()
    tables = {length: table.clone() for length, table in plain.tables.items()}
    for table in tables.values():
        table[..., 2] = -torch.inf
    model = TabularMaskedLM(tables, plain.vocabulary_size)
    for variant in VARIANTS:
        kernel = variant.build("norm")
        start = _start()
        start = concatenate([Sequences(start.tokens.clamp(max=1), start.free, start.attention)])
        tokens, _, energies, _ = _run(model, kernel, start, list(range(6)))
        assert bool((tokens != 2).all()), variant
        assert kernel.init(model, start).evaluation is None or bool(energies.isfinite().all())


def test_a_start_that_no_proposal_can_return_to_stays_finite() -> None:
    """With top-k 1 a token outside the support is kept: leaving it has no reverse, so it is rejected, not NaN."""
    model, start = _model(), _start()
    for name in KERNELS:
        fixed = KERNELS[name].exact and not hasattr(KERNELS[name], "enumerate")
        if not fixed or "proposal" not in KERNELS[name].__dataclass_fields__:
            continue
        kernel = build_kernel(name, ENERGIES["raw"], proposal=MaskedProposal(top_k=1))
        tokens, _, energies, _ = _run(model, kernel, start, list(range(6)))
        assert bool((tokens == start.tokens).all()) and bool(energies.isfinite().all()), name
