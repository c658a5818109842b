"""Decoding by chains: what is found, streamed, chosen and remembered."""

from __future__ import annotations

import dataclasses

import pytest
import tiny
import tiny_conditional
import torch

from maskropolis import HuggingFaceMaskedLM
from maskropolis.errors import InputError
from maskropolis.models.conditional.prefix import PrefixConditional
from maskropolis.searching.hypotheses import decode
from maskropolis.targets.energy import ENERGIES
from maskropolis.targets.enumeration import all_states
from maskropolis.translation import Line, make_decoding, translate, translate_lines

SHORT = ["a", "b b a"]  # sources whose predicted length leaves few enough states
TEXTS = ["a b", "", "c c a b", "b", "a a a b c"]


def lines(texts=TEXTS):
    return [Line(n, text, f"line {n}") for n, text in enumerate(texts, start=1)]


@pytest.mark.parametrize("energy", ["raw", "norm"])
@pytest.mark.parametrize("start", ["mask-predict", "greedy", "masks", "sampled", "random"])
def test_annealed_chains_find_the_state_of_lowest_energy(energy, start):
    model = tiny_conditional.model("a b")
    decoding = make_decoding(
        decoder="mh", start=start, energy=energy, length_beam=1, sweeps=60, temperature=2.0, final_temperature=0.1
    )
    for found in translate_lines(lines(SHORT), model, decoding):
        bound = model.bind([model.source_ids(found.line.text, "source")])
        length = bound.predicted_lengths(1)[0][0]
        assert length <= 6
        states = all_states(bound, bound.rows([0], [[4] * length]))
        lowest = ENERGIES[energy].evaluate(bound, states).energy.min()
        assert found.energy == pytest.approx(float(lowest), abs=1e-4)


def test_the_work_counts_every_row_and_what_moved():
    model = tiny_conditional.model()
    bound = model.bind([model.source_ids("a b", "source")])
    start = [model.target_ids("a c b", "target")]

    def work(**settings):
        return decode(bound, [1], make_decoding(decoder="mh", start="given", **settings), start).work

    assert work(sweeps=0).rows == 3 and work(sweeps=0).mobility is None
    warm, cold = work(sweeps=40, temperature=3.0), work(sweeps=40, temperature=1e-3)
    assert 0 < warm.moved < warm.accepted <= warm.proposed == 120 and warm.mobility == warm.moved / 120
    assert cold.moved < warm.moved and cold.rows > 3


def test_lists_are_as_long_as_asked_for():
    model = tiny_conditional.model()
    for n_best in (1, 2):
        found = translate_lines(lines(), model, make_decoding(n_best=n_best, length_beam=3))
        assert {len(one.candidates) for one in found if one.line.text} == {n_best}
    close = make_decoding(decoder="mh", samples=5, thin=0.01, sweeps=2, length_beam=1)
    assert {len(one.samples) for one in translate_lines(lines(), model, close) if one.line.text} == {5}


def test_the_signature_names_whatever_decides_the_output():
    plain = make_decoding(decoder="mh", samples=2)
    others = [{"samples": 3}, {"samples": 2, "thin": 2.0}, {"samples": 2, "n_best": 2}, {"samples": 2, "sweeps": 3}]
    signatures = {plain.signature(), *(make_decoding(decoder="mh", **other).signature() for other in others)}
    assert len(signatures) == 5
    assert make_decoding(n_best=2).signature() != make_decoding().signature()


def test_the_separator_and_the_ratio_are_in_the_fingerprint_of_a_prefix(tiny_folder):
    plain = HuggingFaceMaskedLM.from_pretrained(tiny_folder)
    ways = [{}, {"separator": "the"}, {"length_ratio": 0.5}]
    assert len({PrefixConditional(plain, **way).fingerprint() for way in ways}) == 3


def test_lines_before_a_reading_error_are_translated():
    def broken():
        yield from lines(["a b", "b", "c"])
        raise InputError("no more")

    found = []
    with pytest.raises(InputError, match="no more"):
        for one in translate_lines(broken(), tiny_conditional.model(), make_decoding(), chunk=2):
            found.append(one.line.number)
    assert found == [1, 2, 3]


def test_joint_choice_with_a_full_hypothesis_and_a_predicted_end():
    model = tiny_conditional.model(end="predicted")
    bound = model.bind([model.source_ids("a b", "source")])
    longest = [[4] * bound.longest]
    found = decode(bound, [1], make_decoding(decoder="mh", start="given", choose="joint", sweeps=1), longest)
    assert len(found.best[0][0].tokens) == bound.longest


@pytest.mark.parametrize("settings", [{}, {"decoder": "mh", "sweeps": 3}, {"decoder": "gibbs", "sweeps": 2}])
def test_the_division_into_chunks_changes_nothing(settings):
    model = tiny_conditional.model()
    decoding = make_decoding(**settings, with_energy=True)
    whole = [t.text for t in translate_lines(lines(), model, decoding)]
    for chunk in (1, 2, 3):
        assert [t.text for t in translate_lines(lines(), model, decoding, chunk=chunk)] == whole
    assert whole[1] == ""


def test_energies_are_those_of_the_answers_and_never_rise_by_searching():
    model = tiny_conditional.model()
    before = list(translate_lines(lines(), model, make_decoding(with_energy=True, length_beam=1)))
    after = list(translate_lines(lines(), model, make_decoding(decoder="mh", sweeps=5, length_beam=1)))
    for first, second in zip(before, after, strict=True):
        if first.line.text:
            assert second.energy <= first.energy + 1e-4
            bound = model.bind([model.source_ids(first.line.text, "source")])
            rows = bound.rows([0], [model.target_ids(second.text, "target")])
            assert float(ENERGIES["norm"].evaluate(bound, rows).energy) == pytest.approx(second.energy, abs=1e-4)


def test_the_choice_among_lengths_is_by_energy_per_token_or_in_total():
    model = tiny_conditional.model()
    for choose in ("per-token", "total", "joint"):
        decoding = make_decoding(decoder="mh", sweeps=2, length_beam=4, n_best=4, choose=choose)
        for found in translate_lines(lines(["a b c"]), model, decoding):
            bound = model.bind([model.source_ids("a b c", "source")])
            lengths = bound.length_scores([0] * 4, [c.tokens for c in found.candidates])
            key = [
                (c.energy - (length if choose == "joint" else 0)) / (1 if choose == "total" else c.tokens)
                for c, length in zip(found.candidates, lengths, strict=True)
            ]
            assert key == sorted(key) and len(key) == 4
            assert len({c.text for c in found.candidates}) == 4


def test_samples_of_a_fixed_temperature():
    decoding = make_decoding(decoder="mh", sweeps=12, samples=5, thin=2, length_beam=1)
    found = next(iter(translate_lines(lines(["a b"]), tiny_conditional.model(), decoding)))
    assert len(found.samples) == 5 and all(sample.energy is not None for sample in found.samples)


def test_a_given_hypothesis_is_where_a_chain_starts():
    model = tiny_conditional.model()
    found = translate(["a b", "c"], model, given=["b b a", "c c"], sweeps=0)
    assert [one.text for one in found] == ["b b a", "c c"]
    with pytest.raises(InputError, match="1 hypotheses for 2 sources"):
        translate(["a b", "c"], model, given=["b"])
    with pytest.raises(InputError, match="hypothesis for sentence 1 has parts that the model does not know"):
        translate(["a b"], model, given=["z"])


def test_the_path_of_a_chain_can_be_watched():
    seen = []
    decoding = make_decoding(decoder="mh", sweeps=3, length_beam=2)
    watch = lambda line, sweep, candidate: seen.append((line.number, sweep, candidate.text))  # noqa: E731
    list(translate_lines(lines(["a b", "c"]), tiny_conditional.model(), decoding, on_sweep=watch))
    assert sorted((n, sweep) for n, sweep, _ in seen) == [(n, sweep) for n in (1, 2) for sweep in range(4)]


def test_all_before_a_bad_line_are_translated():
    texts = ["a b", "a " * 30, "b"]
    stream = translate_lines(lines(texts), tiny_conditional.model(), make_decoding())
    assert next(stream).line.number == 1
    with pytest.raises(InputError, match="line 2 has 31 tokens"):
        next(stream)
    told = []
    found = list(
        translate_lines(lines(texts), tiny_conditional.model(), make_decoding(), skip_bad=True, notify=told.append)
    )
    assert [bool(one.text) for one in found] == [True, False, True] and "left empty" in told[0]


def test_unknown_characters_are_told():
    told = []
    list(translate_lines(lines(["a 😀"]), tiny_conditional.model(), make_decoding(), notify=told.append))
    assert told == ["line 1: the model does not know '😀'; read as unknown"]


def test_a_plain_masked_model_is_conditional_through_a_prefix():
    plain = HuggingFaceMaskedLM(tiny.network("bert"), tiny.tokenizer(), name="tiny-bert")
    model = PrefixConditional(plain, length_ratio=0.5)
    bound = model.bind([model.source_ids("the cat sat on", "source"), model.source_ids("mat", "source")])
    rows = bound.rows([0, 1], [[10, 11], [12]])
    before, after = plain.codec.frame
    expected = [
        *before,
        *plain.codec.tokenizer("the cat sat on", add_special_tokens=False)["input_ids"],
        *after,
        10,
        11,
        *after,
    ]
    assert rows.tokens[0, : len(expected)].tolist() == expected
    assert rows.free_counts.tolist() == [2, 1]
    assert bound.predicted_lengths(3)[0] == [2, 1, 3]
    found = decode(bound, [1, 2], make_decoding(decoder="mh", sweeps=2))
    assert all(h.energy is not None for best in found.best for h in best)
    text = [one.text for one in translate_lines(lines(["the cat", ""]), model, make_decoding(iterations=2))]
    assert text[0] and text[1] == ""


def test_settings_out_of_range_are_one_line():
    for settings, says in [
        ({"decoder": "mhh"}, "did you mean 'mh'"), ({"start": "mask"}, "unknown start"), ({"sweeps": -1}, "sweeps"),
        ({"length_beam": 0}, "length beam"), ({"kernel": "block:k=0"}, "block size"), ({"energy": "rwa"}, "raw"),
        ({"temperature": 0}, "temperature"), ({"speed": 3}, "unknown setting"),
        ({"samples": 9, "sweeps": 2}, "9 samples"), ({"n_best": 2, "lowest": False}, "n-best"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=says):
            make_decoding(**settings)


def test_decoding_is_a_plain_record():
    assert dataclasses.is_dataclass(make_decoding())
    assert torch.get_num_threads() == 1
