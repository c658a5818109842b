"""The length-changing kernel: exact over texts of all lengths, by enumeration and by a long run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from steering_cases import SIZE, decode, model, target, tokens, word

import maskropolis
from maskropolis.convergence.histories import histories
from maskropolis.errors import InputError
from maskropolis.kernels.growing import deleted, inserted, run_ends, run_sizes, run_starts, slot_position
from maskropolis.kernels.resize import gap_bounds
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.proof.certificate import certify, specifications
from maskropolis.proof.markov import closed_classes, detailed_balance_error, invariance_error
from maskropolis.proof.situations import tabular_situations
from maskropolis.proof.transition import transition_of_states
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.constraints.repeats import NoRepeat
from maskropolis.targets.energy import ENERGIES, NORM
from maskropolis.targets.lengths import LengthPrior, all_lengths, token_offset

TOLERANCE = 1e-10
VARIANTS = [
    "resize",
    "resize:prior=poisson,mean=1.5,offset=0.7",
    "resize:resizing=1,offset=-1.3",
    "resize:resizing=0.8,proposal_temperature=1.7,top_k=2",
    "resize:shortest=2",
]
TEMPLATES = {
    "one run": [True],
    "framed": [False, True, True, False],
    "two runs": [True, False, True],
    "two runs inside": [False, True, False, False, True],
}


def template(free: list[bool]) -> Sequences:
    return Sequences.from_lists([[t % 2 for t in range(len(free))]], [free])


def network(free: list[bool], count: int = 2) -> TabularMaskedLM:
    fixed = free.count(False)
    return TabularMaskedLM.random(count, [fixed + n for n in (1, 2, 3)], seed=4, spread=1.5)


@pytest.mark.parametrize("energy", ["norm", "raw"])
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("specification", VARIANTS)
def test_exact_over_lengths_up_to_three(specification: str, name: str, energy: str) -> None:
    of, kernel = network(TEMPLATES[name]), build_kernel(specification, ENERGIES[energy])
    states, log_weights = kernel.enumerate(of, template(TEMPLATES[name]), 0.8)
    inside = states.sequences.free_counts >= kernel.shortest
    states, log_weights = states.rows(inside), log_weights[inside]
    wanted = torch.softmax(log_weights, 0)
    matrix = transition_of_states(of, kernel, states, 0.8)
    assert torch.allclose(matrix.sum(1), torch.ones_like(wanted), atol=1e-12)
    assert invariance_error(matrix, wanted) < TOLERANCE
    assert detailed_balance_error(matrix, wanted) < TOLERANCE
    assert len(closed_classes(matrix)) == 1 or "resizing=1" in specification or "top_k" in specification


def test_the_enumerated_target_is_the_declared_one() -> None:
    """log π = log p(n) + (c n − E) / τ, over 2 + 4 + 8 texts, each once."""
    of, kernel = network([True]), build_kernel("resize:prior=poisson,mean=1.5,offset=0.7", NORM)
    states, log_weights = kernel.enumerate(of, template([True]), 0.8)
    x = states.sequences
    assert x.free_counts.bincount().tolist() == [0, 2, 4, 8]
    assert len({(n, *row) for n, row in zip(x.lengths.tolist(), x.tokens.tolist(), strict=True)}) == 14
    for row, n, found in zip(x.tokens, x.lengths.tolist(), log_weights.tolist(), strict=True):
        one = Sequences.from_lists([row[:n].tolist()], [[True] * n])
        prior = LengthPrior("poisson", 1.5).log_prob(torch.tensor([n]))
        assert found == pytest.approx(float(prior + (0.7 * n - NORM.evaluate(of, one).energy) / 0.8), abs=1e-12)


def test_the_certificate_covers_it() -> None:
    assert {"resize", "resize:prior=poisson,mean=1.5,offset=0.7"} <= set(specifications())
    first, second, *_ = tabular_situations()
    for situation in (first, second):
        found = certify("resize", situation, "norm", 0.8)
        assert found.holds and found.states == 14 and found.classes == 1, found


@pytest.mark.parametrize("wrong", ["slots", "deletions", "density"])
def test_a_wrong_ratio_is_caught(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    from maskropolis.kernels import resize

    real = resize.Resize._propose

    def broken(self, of, x, move, t, uniforms):
        part, hastings, rows = real(self, of, x, move, t, uniforms)
        n = x.free_counts.double()
        error = {
            "slots": torch.where(move == 1, ((n + 1) / (n + 2)).log(), 0.0),
            "deletions": torch.where(move == 2, 0.2, 0.0).double(),
            "density": torch.where(move == 0, 0.1 * part.tokens.sum(1), 0.0).double(),
        }[wrong]
        return part, hastings + error, rows

    monkeypatch.setattr(resize.Resize, "_propose", broken)
    assert not certify("resize", next(iter(tabular_situations())), "norm", 1.0).holds


def test_constraints_and_experts_across_lengths() -> None:
    of = model((1, 2, 3))
    for parts in ((word([1]),), (NoRepeat(1, SIZE, 3),), (word([0, 1], required=False), tokens(0, 2, first=2))):
        steered = target("norm", *parts)
        kernel = build_kernel("resize:offset=0.4", steered)
        every = all_lengths(of, template([True]), 3)
        inside = every.rows(steered.constraints.hold(every, decode(every)))
        assert 3 < len(inside) < len(every)
        state = kernel._state(of, inside, torch.full((len(inside),), 3))
        wanted = torch.softmax(kernel._log_target(inside.free_counts, state.energy, 1.2), 0)
        assert invariance_error(transition_of_states(of, kernel, state, 1.2), wanted) < TOLERANCE


def test_a_long_run_visits_the_declared_lengths() -> None:
    of, kernel = network([True]), build_kernel("resize:longest=3,prior=poisson,mean=2,offset=0.5", NORM)
    states, log_weights = kernel.enumerate(of, template([True]), 1.0)
    weights = torch.softmax(log_weights, 0)
    wanted = torch.stack([weights[states.sequences.free_counts == n].sum() for n in (1, 2, 3)])
    chains, seen = 200, []
    state = kernel.init(of, template([True]).rows(torch.zeros(chains, dtype=torch.long)))
    streams = Streams(7, range(chains))
    for step in range(350):
        state, _ = kernel.step(of, state, 1.0, streams.uniforms(step, kernel.uniforms_per_step))
        if step >= 100:
            seen.append(torch.nn.functional.one_hot(state.sequences.free_counts - 1, 3).double())
    shares = torch.stack(seen).mean(0)  # [chains, 3], independent rows
    found, error = shares.mean(0), shares.std(0) / chains**0.5
    print(f"lengths 1, 2, 3: wanted {wanted.tolist()}, found {found.tolist()} ± {error.tolist()}")
    assert bool(((found - wanted).abs() < 4 * error).all()) and bool((error < 0.02).all())


def test_surgery_against_lists() -> None:
    x = Sequences.from_lists(
        [[9, 1, 2, 8, 3, 7], [9, 4, 7]], [[False, True, True, False, True, False], [False, True, False]]
    )
    x = Sequences(*(torch.nn.functional.pad(part, (0, 1)) for part in (x.tokens, x.free, x.attention)))
    assert run_starts(x)[0].nonzero()[:, 0].tolist() == [1, 4] and run_ends(x)[0].nonzero()[:, 0].tolist() == [2, 4]
    slots = [slot_position(x, torch.tensor([k, 0]))[0].item() for k in range(5)]
    assert slots == [1, 2, 4, 3, 5]
    for position in (1, 2, 3, 4, 5):
        grown = inserted(x, torch.tensor([position, 1]), 5)
        plain = [9, 1, 2, 8, 3, 7]
        plain.insert(position, 5)
        assert grown.tokens[0].tolist() == plain and grown.free_counts.tolist() == [4, 2]
        again = deleted(grown, torch.tensor([position, 1]))
        for part in ("tokens", "free", "attention"):
            assert torch.equal(getattr(again, part), getattr(x, part))


def test_on_a_real_model(tiny_bert: Any, tmp_path: Path) -> None:
    settings = {"length": 4, "chains": 4, "burn_in": 0, "thin": 5, "samples": 6, "seed": 2}
    kernel = "resize:shortest=2,longest=9,prior=poisson,mean=5"
    samples = maskropolis.sample(tiny_bert, kernel=kernel, require=["cat"], **settings)
    lengths = {len(record["token_ids"]) - 2 for record in samples}
    assert lengths <= set(range(2, 10)) and len(lengths) > 2
    assert all("cat" in text.split() for text in samples.texts)
    for record in samples:
        ids = record["token_ids"]
        row = tiny_bert.codec.pad([ids], [[False] + [True] * (len(ids) - 2) + [False]])
        assert record["energy"] == pytest.approx(float(NORM.evaluate(tiny_bert, row).energy[0]), abs=1e-3)
    expected = [(r["chain"], r["step"], r["text"], r["energy"]) for r in samples]
    half = maskropolis.sample(
        tiny_bert, kernel=kernel, require=["cat"], **settings | {"steps": 60}, out=tmp_path / "run"
    )
    assert half.steps == 60
    assert histories(half)[0].tokens.shape[0] == 4  # chains; rows of different length
    run = maskropolis.resume(tmp_path / "run", steps=samples.steps, model=tiny_bert)
    assert [(r["chain"], r["step"], r["text"], r["energy"]) for r in run] == expected


def test_a_gap_of_unknown_length_in_prose(tiny_bert: Any) -> None:
    samples = maskropolis.sample(
        tiny_bert,
        template="the cat [MASK] on a [MASK] mat.",
        kernel="resize:longest=6",
        chains=3,
        samples=4,
        allow=["words"],
    )
    for text in samples.texts:
        assert text.startswith("the cat ") and text.endswith(" mat.") and " on a " in text


def test_token_offset_is_the_slope(tiny_bert: Any) -> None:
    texts = [tiny_bert.codec.encode([text]) for text in ("the cat", "the cat sat on a mat", "unhappy cat, sleeping on")]
    offset = token_offset(tiny_bert, NORM, texts)
    energies = [float(NORM.evaluate(tiny_bert, text).energy[0]) for text in texts]
    lengths = [int(text.free_counts[0]) for text in texts]
    matrix = torch.tensor([[1.0, n] for n in lengths], dtype=torch.float64)
    plain = torch.linalg.lstsq(matrix, torch.tensor(energies, dtype=torch.float64)[:, None]).solution[1]
    assert offset == pytest.approx(float(plain), rel=1e-6)
    with pytest.raises(InputError, match="several lengths"):
        token_offset(tiny_bert, NORM, texts[:1])


def test_a_corpus_of_lengths(tmp_path: Path) -> None:
    file = tmp_path / "lengths"
    file.write_text("2\n2\n3\n5\n")
    prior = LengthPrior("corpus", file=str(file))
    assert prior.log_prob(torch.tensor([2, 3, 4])).exp().tolist() == pytest.approx([0.5, 0.25, 0.0])


BAD = [
    ("resize:shortest=0", "out of range"),
    ("resize:shortest=5,longest=3", "out of range"),
    ("resize:resizing=0", "share of steps"),
    ("resize:prior=possion", "did you mean 'poisson'"),
    ("resize:prior=poisson,mean=-1", "positive number"),
    ("resize:prior=corpus,corpus=/no/such/file", "cannot read lengths"),
    ("resize:offset=nan", "nats a token"),
    ("tempering:kernel=resize", "one temperature and length"),
    ("mixture:resize=1", "one temperature and length"),
    ("delayed:kernel=resize", "needs a proposal"),
]


@pytest.mark.parametrize(("specification", "message"), BAD)
def test_bad_settings(specification: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_kernel(specification, NORM)


def test_a_start_out_of_bounds_is_named(tiny_bert: Any) -> None:
    with pytest.raises(InputError, match="begins with 4 free tokens"):
        maskropolis.sample(tiny_bert, length=4, kernel="resize:longest=3")


@pytest.mark.parametrize(("name", "gaps"), [("framed", "2-3"), ("two runs", "1-2/1"), ("two runs inside", "1/1-2")])
def test_gaps_bound_each_run(name: str, gaps: str) -> None:
    """Exact on the texts whose runs keep their bounds, and all of them are reached."""
    of, kernel = network(TEMPLATES[name]), build_kernel(f"resize:gaps={gaps},offset=0.3", NORM)
    every, bounds = all_lengths(of, template(TEMPLATES[name]), 3), gap_bounds(gaps)
    sizes = run_sizes(every)[:, : len(bounds)].tolist()
    inside = [all(a <= n <= b for n, (a, b) in zip(row, bounds, strict=True)) for row in sizes]
    some = every.rows(torch.tensor(inside))
    assert 3 < len(some) < len(every)
    state = kernel._state(of, some, torch.full((len(some),), 3))
    wanted = torch.softmax(kernel._log_target(some.free_counts, state.energy, 0.9), 0)
    matrix = transition_of_states(of, kernel, state, 0.9)
    assert invariance_error(matrix, wanted) < TOLERANCE and detailed_balance_error(matrix, wanted) < TOLERANCE
    assert len(closed_classes(matrix)) == 1


def test_gaps_that_do_not_fit(tiny_bert: Any) -> None:
    for gaps, message in (
        ("2", "begins with gaps of 1, 1"),
        ("1/2", "begins with gaps of 1, 1"),
        ("3-2/1", "≤ longest"),
    ):
        with pytest.raises(InputError, match=message):
            maskropolis.sample(tiny_bert, template="the [MASK] sat on [MASK].", kernel=f"resize:gaps={gaps}")
