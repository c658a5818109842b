"""Energies against a loop that masks one position at a time; schedules; enumeration."""

from __future__ import annotations

import itertools
import math

import pytest
import tiny
import torch

from maskropolis import HuggingFaceMaskedLM
from maskropolis.errors import InputError, NumericalError
from maskropolis.models.reference.tabular import TabularMaskedLM
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, RAW, Known, block_conditionals, conditionals_at, energy_by_name
from maskropolis.targets.enumeration import all_states, exact_distribution
from maskropolis.targets.schedule import Schedule


@pytest.fixture
def tabular() -> TabularMaskedLM:
    return TabularMaskedLM.random(tokens=3, lengths=[2, 3], seed=3)


@pytest.fixture
def sequences() -> Sequences:
    tokens = [[0, 1, 2], [2, 2], [1, 0, 0]]
    return Sequences.from_lists(tokens, [[True, True, True], [True, True], [False, True, True]])


def by_hand(model: TabularMaskedLM, tokens: list[int], free: list[int], normalised: bool) -> list[float]:
    """The terms of an energy, from the tables themselves."""
    terms = []
    for t in free:
        context = [model.mask_token if i == t else token for i, token in enumerate(tokens)]
        number = sum(token * model.vocabulary_size ** (len(tokens) - 1 - i) for i, token in enumerate(context))
        logits = model.tables[len(tokens)][t, number].tolist()
        total = math.log(sum(map(math.exp, logits))) if normalised else 0.0
        terms.append(total - logits[tokens[t]])
    return terms


@pytest.mark.parametrize("energy", [RAW, NORM], ids=lambda e: e.name)
def test_energies_by_hand(tabular: TabularMaskedLM, sequences: Sequences, energy: object) -> None:
    evaluation = energy.evaluate(tabular, sequences, keep=True)  # type: ignore[attr-defined]
    assert evaluation.rows == 3 + 2 + 2
    for chain in range(3):
        free = sequences.free[chain].nonzero()[:, 0].tolist()
        tokens = sequences.tokens[chain, : int(sequences.lengths[chain])].tolist()
        terms = by_hand(tabular, tokens, free, energy is NORM)
        assert evaluation.terms[chain, free].tolist() == pytest.approx(terms, abs=1e-12)
        assert float(evaluation.energy[chain]) == pytest.approx(sum(terms), abs=1e-12)
    assert (evaluation.terms[~sequences.free] == 0).all()


@pytest.mark.parametrize("energy", [RAW, NORM], ids=lambda e: e.name)
def test_a_known_conditional_spares_a_row(tabular: TabularMaskedLM, sequences: Sequences, energy: object) -> None:
    full = energy.evaluate(tabular, sequences, keep=True)  # type: ignore[attr-defined]
    at = torch.tensor([2, 0, 1])
    known = Known(at, conditionals_at(tabular, sequences, at))
    less = energy.evaluate(tabular, sequences, keep=True, known=known)  # type: ignore[attr-defined]
    assert less.rows == full.rows - 3
    torch.testing.assert_close(less.terms, full.terms, atol=1e-12, rtol=0)
    for chain, t in sequences.free.nonzero().tolist():
        place = torch.full((3,), t)
        if sequences.free[:, t].all():
            torch.testing.assert_close(less.conditionals.at(place)[chain], full.conditionals.at(place)[chain])


def test_blocks_mask_all_their_positions(tabular: TabularMaskedLM) -> None:
    row = Sequences.from_lists([[0, 1, 2]], [[True] * 3])
    found = block_conditionals(tabular, row, torch.tensor([[0, 2]]))
    masked = row.masked(torch.tensor([[0, 2]]), tabular.mask_token)
    assert torch.equal(found, tabular.logits(masked, torch.tensor([[0, 2]])))


def test_energies_of_a_network_against_the_full_model(tiny_bert: HuggingFaceMaskedLM) -> None:
    sequences = tiny_bert.codec.encode(tiny.SENTENCES)
    for chain, length in enumerate(sequences.lengths.tolist()):
        raw, norm = 0.0, 0.0
        for t in range(1, length - 1):
            ids = sequences.tokens[chain : chain + 1, :length].clone()
            token = int(ids[0, t])
            ids[0, t] = tiny.MASK
            with torch.inference_mode():
                logits = tiny_bert.model(input_ids=ids).logits[0, t].double()
            raw -= float(logits[token])
            norm -= float(logits.log_softmax(-1)[token])
        one = sequences.rows(torch.tensor([chain]))
        assert float(RAW.evaluate(tiny_bert, one).energy) == pytest.approx(raw, abs=1e-4)
        assert float(NORM.evaluate(tiny_bert, one).energy) == pytest.approx(norm, abs=1e-4)


def test_bad_numbers_name_chains(tabular: TabularMaskedLM, sequences: Sequences) -> None:
    tabular.tables[2][:] = torch.nan
    with pytest.raises(NumericalError, match=r"\(chain 1\)"):
        NORM.evaluate(tabular, sequences)


def test_names() -> None:
    assert energy_by_name("raw") is RAW and energy_by_name("norm") is NORM
    with pytest.raises(InputError, match="did you mean 'norm'"):
        energy_by_name("nrom")


def test_enumeration_is_complete_and_normalised(tabular: TabularMaskedLM) -> None:
    template = Sequences.from_lists([[0, 1, 2]], [[True, False, True]])
    states = all_states(tabular, template)
    assert [tuple(row) for row in states.tokens.tolist()] == [
        (a, 1, b) for a, b in itertools.product(range(3), repeat=2)
    ]
    for temperature in (0.5, 1.0, 3.0):
        probabilities = exact_distribution(tabular, NORM, states, temperature)
        weights = (-NORM.evaluate(tabular, states).energy / temperature).exp()
        torch.testing.assert_close(probabilities, weights / weights.sum(), atol=1e-12, rtol=0)
    with pytest.raises(InputError, match="make 250000 states"):
        all_states(tabular, template, torch.arange(500))


def test_independent_tokens_are_their_own_target() -> None:
    """For a product distribution the masked conditionals are the marginals, and π is the product itself."""
    marginal = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    model = TabularMaskedLM.from_joint(marginal[:, None] * marginal[None, :])
    states = all_states(model, Sequences.from_lists([[0, 0]], [[True, True]]))
    expected = (marginal[:, None] * marginal[None, :]).flatten()
    torch.testing.assert_close(exact_distribution(model, NORM, states), expected, atol=1e-12, rtol=0)


def test_schedules() -> None:
    for shape in ("linear", "geometric", "cosine"):
        schedule = Schedule(2.0, 0.5, 11, shape)
        values = [schedule(step) for step in range(20)]
        assert values[0] == pytest.approx(2) and values[10:] == pytest.approx([0.5] * 10)
        assert values[:11] == sorted(values[:11], reverse=True) and not schedule.constant
    assert Schedule(2.0, 0.5, 11, "linear")(5) == pytest.approx(1.25)
    assert Schedule(2.0, 0.5, 11, "geometric")(5) == pytest.approx(1.0)
    assert Schedule(2.0, 0.5, 11, "cosine")(5) == pytest.approx(1.25)
    assert Schedule(0.7)(123) == 0.7 and Schedule(0.7).constant


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "temperature 0.0 is out of range"),
        ((math.nan,), "out of range"),
        ((1.0, -1.0, 5, "linear"), "temperature -1.0"),
        ((1.0, 0.5), "constant schedule cannot go"),
        ((1.0, 0.5, 0, "linear"), "0 steps"),
        ((1.0, 0.5, 5, "cosin"), "did you mean 'cosine'"),
    ],
)
def test_bad_schedules(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Schedule(*arguments)  # type: ignore[arg-type]
