"""`maskropolis.sample`: what can be asked for, what is refused, what comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch

import maskropolis
from maskropolis.errors import InputError, MaskropolisError
from maskropolis.sampling import SamplingConfig, prepare
from maskropolis.targets.energy import NORM

QUICK: dict[str, Any] = {"chains": 2, "burn_in": 1, "thin": 1}


def test_samples(tiny_bert: Any) -> None:
    samples = maskropolis.sample(tiny_bert, length=5, samples=3, **QUICK)
    assert len(samples) == len(samples.texts) == len(samples.energy) == 6
    assert [record["step"] for record in samples] == [10, 10, 15, 15, 20, 20]
    assert not samples.interrupted and samples.steps == 20 and 0 <= samples.acceptance_rate <= 1
    frame = samples.to_pandas()
    assert list(frame.columns) == ["chain", "step", "text", "token_ids", "energy", "temperature", "accepted"]
    assert samples.trace().num_rows == 40
    for part in (
        "model:tiny-bert@",
        "energy:norm",
        "kernel:single-site[exact]",
        "temperature:1",
        "seed:0",
    ):
        assert part in samples.signature


def test_energies_are_those_of_score(tiny_bert: Any) -> None:
    samples = maskropolis.sample(tiny_bert, template="the [MASK] sat [MASK] the mat", **QUICK)
    rows = prepare(tiny_bert, SamplingConfig(templates=("the [MASK] sat [MASK] the mat",), chains=2)).state.sequences
    for record, row in zip(samples, range(2), strict=True):
        one = rows.rows(torch.tensor([row]))
        one = one.with_tokens(torch.arange(one.width)[None], torch.tensor([record["token_ids"]]))
        assert NORM.evaluate(tiny_bert, one).energy.item() == pytest.approx(record["energy"], abs=1e-5)


def test_a_chain_does_not_depend_on_its_company(tiny_bert: Any) -> None:
    few, many = (maskropolis.sample(tiny_bert, length=5, **QUICK | {"chains": n}) for n in (2, 5))
    assert few.texts == many.texts[:2]
    other = maskropolis.sample(tiny_bert, length=5, seed=1, **QUICK)
    assert other.texts != few.texts


def test_templates_and_fixed_spans_keep_their_context(tiny_bert: Any) -> None:
    for text in maskropolis.sample(tiny_bert, template="the [MASK] sat on the [MASK]", **QUICK).texts:
        assert text.startswith("the") and " sat on the" in text
    for text in maskropolis.sample(tiny_bert, text="the cat sat on the mat", fixed="cat sat", **QUICK).texts:
        assert "cat sat" in text
    two = maskropolis.sample(tiny_bert, template=["the [MASK]", "cat sat on [MASK]"], **QUICK).texts
    assert two[0].startswith("the") and two[1].startswith("cat sat on")


def test_write(tiny_bert: Any, tmp_path: Path) -> None:
    samples = maskropolis.sample(tiny_bert, length=3, **QUICK)
    samples.write(str(tmp_path / "s.jsonl"))
    lines = (tmp_path / "s.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == samples.texts
    samples.write(str(tmp_path / "s.parquet"))
    assert pyarrow.parquet.read_table(tmp_path / "s.parquet")["text"].to_pylist() == samples.texts
    with pytest.raises(InputError, match="exists"):
        samples.write(str(tmp_path / "s.jsonl"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 0}, "length 0 is too small"),
        ({"length": 200}, r"more than the model's limit of 48"),
        ({"length": [5, -1]}, "length -1 is too small"),
        ({"length": 5, "template": "the [MASK]"}, "one of length, template or text; got length and template"),
        ({"template": "the cat"}, "template 1 has nothing free"),
        ({"template": " "}, "template 1 is empty"),
        ({"text": ""}, "sentence 1 is empty"),
        ({"text": "the cat [MASK]"}, "holds a mask token; give it as a template"),
        ({"text": "the cat " * 40}, "more than the model's limit of 48"),
        ({"text": "the cat", "fixed": "dog"}, "the fixed span 'dog' does not occur"),
        ({"text": "the cat", "fixed": "the cat"}, "nothing is free"),
        ({"length": 5, "fixed": "cat"}, "fixed spans need a start text"),
        ({"chains": 0}, "chains 0 is out of range"),
        ({"chains": 1, "length": [3, 4]}, "1 chains cannot cover 2 starts"),
        ({"samples": 0}, "samples 0 is out of range"),
        ({"steps": 0}, "steps 0 is out of range"),
        ({"seed": -1}, "seed -1 is out of range"),
        ({"seed": 1.5}, "seed 1.5 is out of range; expected a whole number"),
        ({"burn_in": -1}, "burn-in -1 is out of range"),
        ({"burn_in": 1e300}, "burn-in 1e.300 is out of range"),
        ({"thin": 1e13}, "thin .* is out of range"),
        ({"samples": 10**13}, "samples .* is out of range"),
        ({"steps": 10**13}, "steps .* is out of range"),
        ({"chains": 10**9}, "chains .* is out of range"),
        ({"burn_in": 1e12, "samples": 10**6}, "steps; expected at most 1e.12"),
        ({"temperature": 1e-7}, "expected a number from 1e-06 to 1e.06"),
        ({"temperature": 1e7}, "expected a number from 1e-06 to 1e.06"),
        ({"template": "a <mask> [MASK]"}, r"<mask>, which marks no gap for this model; write \[MASK\]"),
        ({"thin": float("nan")}, "thin nan is out of range"),
        ({"temperature": 0}, "temperature 0 is out of range"),
        ({"temperature": float("inf")}, "temperature inf is out of range"),
        ({"temperature": "hot"}, "temperature 'hot' is out of range"),
        ({"final_temperature": -1.0}, "final-temperature -1.0 is out of range"),
        ({"schedule": "liner"}, "unknown schedule 'liner'; did you mean 'linear'"),
        ({"energy": "nrom"}, "unknown energy 'nrom'; did you mean 'norm'"),
        ({"start": "gredy"}, "unknown start 'gredy'; did you mean 'greedy'"),
        ({"kernel": "blok"}, "unknown kernel 'blok'; did you mean 'block'"),
        ({"kernel": "block:k=0"}, "k = 0 is out of range"),
        (
            {"length": 4, "burn_in": 2, "kernel": "tempering:levels=3,adapt=20"},
            "adapts for 20 steps, but only 8 are burn-in",
        ),
        ({"kernel": "block:k=two"}, "k=two is malformed; expected a whole number"),
        ({"kernel": "block:q=2"}, "unknown setting of kernel 'block'"),
        ({"kernel": "single-site:top_k=0"}, "top-k 0 is out of range"),
        ({"kernel": "single-site:scan=up"}, "unknown scan 'up'"),
        ({"kernel": "single-site:proposal_temperature=0"}, "proposal temperature 0.0 is out of range"),
        ({"tempertaure": 1.0}, "unknown setting 'tempertaure'; did you mean 'temperature'"),
    ],
)
def test_bad_settings(tiny_bert: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MaskropolisError, match=message) as caught:
        maskropolis.sample(tiny_bert, **settings)
    assert "\n" not in str(caught.value)


def test_annealing_and_gibbs_are_labelled(tiny_bert: Any) -> None:
    annealed = maskropolis.sample(tiny_bert, length=3, temperature=2.0, final_temperature=0.5, **QUICK)
    assert "[annealed]" in annealed.signature and "geometric(2→0.5" in annealed.signature
    gibbs = maskropolis.sample(tiny_bert, length=3, kernel="gibbs:top_k=5", **QUICK)
    assert "gibbs(top_k=5)[no target]" in gibbs.signature
    assert all(energy > 0 for energy in gibbs.energy)


def test_config_survives_json() -> None:
    config = SamplingConfig(lengths=(3, 4), kernel="block:k=3", steps=7, temperature=0.3)
    assert SamplingConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    with pytest.raises(InputError, match="unknown setting 'lenghts'; did you mean 'lengths'"):
        SamplingConfig.from_json({"lenghts": [3]})


def test_folders_as_paths_and_numbers_of_numpy(tiny_folder: Path, tiny_bert: Any) -> None:
    plain = maskropolis.sample(tiny_bert, length=3, chains=2, temperature=1.5, burn_in=1, thin=1)
    other = maskropolis.sample(
        tiny_folder, length=np.array([3]), chains=np.int64(2), temperature=np.float64(1.5), burn_in=1, thin=1
    )
    assert plain.texts == other.texts and json.dumps(other.config) == json.dumps(plain.config)
    assert maskropolis.score("the cat", tiny_folder)[0].pll == maskropolis.score("the cat", tiny_bert)[0].pll


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 3.0}, "length 3.0 is malformed"),
        ({"length": ["a"]}, "length 'a' is malformed"),
        ({"template": [3]}, "templates 3 is of type int; expected text"),
        ({"kernel": None}, "kernel None is of type NoneType; expected text"),
        ({"experts": 3}, "experts 3 is of type int; expected text"),
    ],
)
def test_values_of_the_wrong_type(tiny_bert: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        maskropolis.sample(tiny_bert, **settings)


def test_tokens_of_a_template_that_the_vocabulary_lacks_are_noted(tiny_bert: Any) -> None:
    settings: dict[str, Any] = {"chains": 2, "burn_in": 1, "progress": False}
    result = maskropolis.sample(tiny_bert, template=["the € [MASK] €", "the [MASK]"], **settings)
    assert result.notices == ["2 of the tokens around the gaps are unknown to the model's vocabulary"]
    assert maskropolis.sample(tiny_bert, template="the cat [MASK]", **settings).notices == []
    made = maskropolis.generate(tiny_bert, template="the € [MASK]", chains=2, steps=2)
    assert made.notices == ["1 of the tokens around the gaps are unknown to the model's vocabulary"]
