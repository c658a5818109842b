"""Scores against a plain loop over the full model, one masked copy at a time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from maskropolis import HuggingFaceMaskedLM, load, mutate, score
from maskropolis.errors import InputError, MaskropolisError, ModelError, NumericalError
from maskropolis.records import Record
from maskropolis.scoring import METRICS, pseudo_perplexity, require_metrics, score_records
from maskropolis.targets.energy import NORM, RAW

TEXTS = [*tiny.SENTENCES, "the unhappying cat", "on", "zzz, sleeping."]


def by_hand(model: HuggingFaceMaskedLM, text: str, within_words: bool = False) -> tuple[list[float], list[float]]:
    """(log-probabilities, logits) of the tokens of `text`, one forward pass of the whole model for each."""
    encoded = model.codec.tokenizer(text)
    ids, words = encoded["input_ids"], encoded.word_ids()
    log_probabilities, logits = [], []
    for t in range(1, len(ids) - 1):
        masked = list(ids)
        for later in range(t, len(ids) - 1):
            if later == t or (within_words and words[later] == words[t]):
                masked[later] = model.mask_token
        with torch.inference_mode():
            row = model.model(input_ids=torch.tensor([masked])).logits[0, t]
        log_probabilities.append(float(row.log_softmax(-1)[ids[t]]))
        logits.append(float(row[ids[t]]))
    return log_probabilities, logits


def test_every_metric_against_the_loop(tiny_bert: HuggingFaceMaskedLM) -> None:
    for text, found in zip(TEXTS, score(TEXTS, tiny_bert, metric="all"), strict=True):
        log_probabilities, logits = by_hand(tiny_bert, text)
        word_l2r, _ = by_hand(tiny_bert, text, within_words=True)
        assert found.text == text
        assert found.log_probabilities == pytest.approx(log_probabilities, abs=1e-4)
        assert found.logits == pytest.approx(logits, abs=1e-4)
        assert found.word_l2r == pytest.approx(word_l2r, abs=1e-4)
        assert found.pll == pytest.approx(sum(log_probabilities), abs=1e-4)
        assert found.pppl == pytest.approx(math.exp(-sum(log_probabilities) / len(logits)), rel=1e-4)
        assert found.value("raw") == pytest.approx(-sum(logits), abs=1e-4)
        assert found.value("norm") == -found.pll
        assert found.value("pll-word-l2r") == pytest.approx(sum(word_l2r), abs=1e-4)
        assert list(found.tokens) == tiny_bert.codec.tokenizer.tokenize(text)


def test_words_of_several_pieces_differ_and_single_pieces_do_not(tiny_bert: HuggingFaceMaskedLM) -> None:
    one, several = score(["the cat", "unhappying"], tiny_bert, metric="pll-word-l2r")
    assert one.word_l2r == one.log_probabilities
    assert several.word_l2r is not None
    assert several.word_l2r[-1] == several.log_probabilities[-1]
    assert all(a != b for a, b in zip(several.word_l2r[:-1], several.log_probabilities[:-1], strict=True))


def test_scores_are_the_energies(tiny_bert: HuggingFaceMaskedLM) -> None:
    sequences = tiny_bert.codec.encode(TEXTS)
    scores = score(TEXTS, tiny_bert)
    for energy, name in ((RAW, "raw_energy"), (NORM, "norm_energy")):
        expected = energy.evaluate(tiny_bert, sequences).energy.tolist()
        assert [getattr(one, name) for one in scores] == pytest.approx(expected, abs=1e-4)


def test_rows_are_shared(tiny_bert: HuggingFaceMaskedLM) -> None:
    rows: list[int] = []
    records = [Record("the unhappying cat", 1, "here")]
    list(score_records(records, tiny_bert, word_l2r=True, observe=rows.append))
    assert sum(rows) == 5 + 2  # the un ##happy ##ing cat, and one more row for un and for ##happy


@pytest.mark.parametrize("architecture", ["bert", "convbert", "fnet", "longformer", "deberta-v2", "modernbert"])
@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_a_score_does_not_depend_on_its_company(architecture: str, budget: int) -> None:
    model = HuggingFaceMaskedLM(tiny.network(architecture), tiny.tokenizer())
    alone = [score(text, model, metric="all")[0] for text in TEXTS]
    model.budget.tokens = budget
    for found, expected in zip(score(TEXTS, model, metric="all"), alone, strict=True):
        assert found.log_probabilities == pytest.approx(expected.log_probabilities, abs=1e-4)
        assert found.word_l2r == pytest.approx(expected.word_l2r, abs=1e-4)


def test_context_is_seen_but_not_scored(tiny_bert: HuggingFaceMaskedLM) -> None:
    whole, _ = by_hand(tiny_bert, "the cat sat on the mat")
    found = score("sat on", tiny_bert, prefix="the cat", suffix="the mat")[0]
    assert found.tokens == ("sat", "on")
    assert found.log_probabilities == pytest.approx(whole[2:4], abs=1e-4)
    assert score("sat on", tiny_bert)[0].pll != pytest.approx(found.pll, abs=1e-4)


def test_a_straddling_token_is_scored(tiny_bert: HuggingFaceMaskedLM) -> None:
    found = score("appying", tiny_bert, prefix="unh", joint="")[0]
    assert found.tokens == ("##happy", "##ing")


def test_no_joint_where_white_space_is(tiny_bert: HuggingFaceMaskedLM) -> None:
    spaced = score("sat", tiny_bert, prefix="the cat ", joint="x")[0]
    assert spaced.tokens == ("sat",)
    assert spaced.pll == pytest.approx(score("sat", tiny_bert, prefix="the cat")[0].pll, abs=1e-5)


def test_one_context_for_each_text(tiny_bert: HuggingFaceMaskedLM) -> None:
    first, second = score(["sat", "sat"], tiny_bert, prefix=["the cat", "a mat"])
    assert first.pll != second.pll
    with pytest.raises(InputError, match="1 values of prefix for 2 texts"):
        score(["sat", "sat"], tiny_bert, prefix=["the cat"])


def test_an_unknown_token_is_scored(tiny_bert: HuggingFaceMaskedLM) -> None:
    assert score("the 猫", tiny_bert)[0].tokens == ("the", "[UNK]")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sentence 2 is empty"),
        (" \t", "sentence 2 is empty"),
        ("the " * 60, f"sentence 2 has 62 tokens, more than the model's limit of {tiny.POSITIONS}.*the the"),
        ("the [MASK] sat", "sentence 2 holds a mask token"),
        ("[SEP]", "sentence 2 has no tokens"),
        ("\x00\x01", "sentence 2 has no tokens"),
        ("bad \ud800", "sentence 2 has a broken character"),
        (7, "sentence 2 is of type int"),
    ],
)
def test_bad_sentences_are_named(tiny_bert: HuggingFaceMaskedLM, text: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score(["the cat", text, "sat"], tiny_bert)


def test_what_came_before_a_bad_sentence_is_kept(tiny_bert: HuggingFaceMaskedLM) -> None:
    records = [Record(text, line, f"line {line}") for line, text in enumerate(["the cat", "a mat", ""], start=1)]
    scores = score_records(records, tiny_bert)
    assert [next(scores).text, next(scores).text] == ["the cat", "a mat"]
    with pytest.raises(InputError, match="line 3 is empty"):
        next(scores)


def test_not_a_number_names_the_sentence_and_keeps_those_before() -> None:
    network = tiny.network("bert")
    with torch.no_grad():
        network.bert.embeddings.word_embeddings.weight[tiny.PIECES.index("mat")] = torch.nan
        network.cls.predictions.decoder.weight = torch.nn.Parameter(torch.randn(tiny.V, 32))
    model = HuggingFaceMaskedLM(network, tiny.tokenizer())
    records = [Record(text, i, f"line {i}") for i, text in enumerate(["the cat", "the cat sat on the mat"], start=1)]
    scores = score_records(records, model)
    assert next(scores).text == "the cat"
    with pytest.raises(NumericalError, match="NaN or infinite logits for line 2"):
        next(scores)


def test_memory_is_bounded_by_chunks(tiny_bert: HuggingFaceMaskedLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskropolis.scoring._CHUNK", 1)
    monkeypatch.setattr(tiny_bert.budget, "tokens", 64)
    taken: list[int] = []

    def endless() -> Any:
        line = 0
        while True:
            line += 1
            taken.append(line)
            yield Record("the cat sat", line, f"line {line}")

    scores = score_records(endless(), tiny_bert)
    assert [next(scores).record.line for _ in range(10)] == list(range(1, 11))
    assert len(taken) < 20


def test_metrics() -> None:
    assert require_metrics(["all"]) == METRICS
    assert require_metrics(["raw", "pll", "raw"]) == ("pll", "raw")
    with pytest.raises(InputError, match="unknown metric 'ppl'; did you mean 'p"):
        require_metrics(["ppl"])


def test_pseudo_perplexity() -> None:
    assert pseudo_perplexity(-4 * math.log(7), 4) == pytest.approx(7)
    assert pseudo_perplexity(-math.inf, 4) == math.inf
    assert pseudo_perplexity(-1e6, 1) == math.inf


def test_a_score_that_is_not_there(tiny_bert: HuggingFaceMaskedLM) -> None:
    (found,) = score("the cat", tiny_bert)
    with pytest.raises(InputError, match="unknown metric 'foo'"):
        found.value("foo")
    for metric in ("pll-word-l2r", "nelbo"):
        with pytest.raises(InputError, match=f"the metric '{metric}' was not computed"):
            found.value(metric)


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        (None, {}, "the text is of type NoneType"),
        ("x", {"metric": None}, "the metric is of type NoneType"),
        ("x", {"metric": [None]}, "unknown metric 'None'"),
        ("x", {"prefix": 3}, "the prefix is of type int"),
        ("x", {"model": 3}, "the model is of type int; expected a name, a folder or a loaded model"),
    ],
)
def test_wrong_types(tiny_bert: HuggingFaceMaskedLM, texts: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MaskropolisError, match=message):
        score(texts, **({"model": tiny_bert} | settings))


def test_mutate_and_load_with_wrong_types(tiny_bert: HuggingFaceMaskedLM) -> None:
    with pytest.raises(InputError, match="the sequence is of type NoneType"):
        mutate(None, tiny_bert)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown option 'dtyp'; did you mean 'dtype'"):
        load("anything", dtyp="float32")
    with pytest.raises(InputError, match="token budget of 'x' is out of range"):
        load("anything", token_budget="x")  # type: ignore[arg-type]


def test_all_leaves_out_what_the_tokenizer_cannot_give(tmp_path: Path) -> None:
    model = load(tiny.esm_folder(tmp_path))
    (found,) = score("M K T", model, metric="all")
    assert found.word_l2r is None and found.value("pppl") > 1
    with pytest.raises(ModelError, match="which tokens form a word"):
        score("M K T", model, metric=["all", "pll-word-l2r"])
