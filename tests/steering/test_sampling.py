"""Steering as a user meets it: settings, the command, run folders, networks as experts, and bad input in one line."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as hf
from typer.testing import CliRunner

import maskropolis
from maskropolis import cli
from maskropolis.errors import InputError, MaskropolisError, ModelError
from maskropolis.targets.energy import NORM
from maskropolis.targets.experts.networks import Causal, Classifier, Embedding

QUICK = {"length": 6, "chains": 3, "burn_in": 1, "thin": 1, "samples": 4, "seed": 3}


def consonants(texts: list[str]) -> list[float]:
    return [sum(letter not in "aeiou .,#" for letter in text) / 2 for text in texts]


def wrong_shape(texts: list[str]) -> list[list[float]]:
    return [[1.0, 2.0] for _ in texts]


def not_a_number(texts: list[str]) -> list[float]:
    return [float("nan") for _ in texts]


def fails(texts: list[str]) -> list[float]:
    raise RuntimeError("out of\nluck")


def always_infinite(texts: list[str]) -> list[float]:
    return [float("inf") for _ in texts]


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A classifier, a causal LM and an encoder, each a folder, with random weights."""
    torch.manual_seed(0)
    shape = {k: v for k, v in tiny._SHAPE.items() if k not in ("bos_token_id", "eos_token_id")}
    labels = {"id2label": {0: "calm", 1: "stormy", 2: "dry"}, "label2id": {"calm": 0, "stormy": 1, "dry": 2}}
    gpt = hf.GPT2Config(
        vocab_size=tiny.V, n_positions=48, n_embd=32, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=3
    )
    made = {
        "classifier": hf.BertForSequenceClassification(hf.BertConfig(**shape, **labels, initializer_range=0.5)),
        "causal": hf.GPT2LMHeadModel(gpt),
        "encoder": hf.BertModel(hf.BertConfig(**shape, initializer_range=0.5)),
    }
    folders = {}
    for name, model in made.items():
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        tokenizer = tiny.tokenizer()
        if name == "causal":
            tokenizer.bos_token = "[CLS]"
        tokenizer.save_pretrained(folder)
        folders[name] = str(folder)
    return folders


@pytest.mark.parametrize("kernel", ["single-site", "block", "path", "informed", "delayed", "mixture", "gibbs"])
def test_constraints_hold_in_every_sample(tiny_bert: Any, kernel: str) -> None:
    settings = {"require": ["unhappy", "cat"], "forbid": ["the", "mat"], "no_repeat": 2}
    samples = maskropolis.sample(tiny_bert, kernel=kernel, **QUICK | {"length": 8}, **settings)
    assert len(samples) == 12
    for record in samples:
        words = re.findall(r"\w+", record["text"].lower())
        assert "unhappy" in words and "cat" in words
        assert "the" not in words and "mat" not in words
        ids = record["token_ids"]
        assert len(set(pairwise(ids))) == len(ids) - 1
    assert "require:unhappy" in samples.signature and "no-repeat:2" in samples.signature


@pytest.mark.parametrize("start", ["greedy", "sampled", "random", "diffusion"])
def test_sets_of_tokens(tiny_bert: Any, start: str) -> None:
    allow = ["words", "2-3:=cat,sat", "1:=the"]
    for record in maskropolis.sample(tiny_bert, **QUICK, allow=allow, start=start):
        first, second, third, *rest = record["text"].split()
        assert first == "the" and {second, third} <= {"cat", "sat"}
        assert len(rest) == 3 and all(word.isalpha() for word in rest)


def test_a_keyword_expert_finds_its_word(tiny_bert: Any) -> None:
    long = QUICK | {"chains": 6, "burn_in": 40, "kernel": "gibbs"}
    without = maskropolis.sample(tiny_bert, **long | {"kernel": "single-site"})
    steered = maskropolis.sample(tiny_bert, **long | {"kernel": "single-site"}, experts=["keyword:cat:30"])
    counts = [sum("cat" in text.split() for text in samples.texts) for samples in (without, steered)]
    assert counts[1] > counts[0] and counts[1] >= 20
    assert "norm+keyword:cat:30" in steered.signature


def test_a_function_and_energies_that_add_up(tiny_bert: Any) -> None:
    samples = maskropolis.sample(tiny_bert, **QUICK, experts=[f"python:{__name__}:consonants:2", "length:4:1"])
    for record in samples:
        ids = record["token_ids"]
        row = tiny_bert.codec.pad([ids], [[token not in tiny_bert.codec.special for token in ids]])
        said = 2 * consonants([record["text"]])[0] + abs(len(record["text"].split()) - 4)
        masked = float(NORM.evaluate(tiny_bert, row).energy[0])
        assert record["energy"] == pytest.approx(masked + said, abs=1e-3)


def test_a_run_with_experts_resumes_to_the_same_samples(tiny_bert: Any, tmp_path: Path) -> None:
    settings = QUICK | {"experts": ["keyword:cat:3", "hamming:the cat sat on mat:0.5"], "forbid": ["on"], "steps": 40}
    expected = [(r["chain"], r["step"], r["text"], r["energy"]) for r in maskropolis.sample(tiny_bert, **settings)]
    half = maskropolis.sample(tiny_bert, **settings | {"steps": 20}, out=tmp_path / "run")
    assert half.steps == 20
    run = maskropolis.resume(tmp_path / "run", steps=40, model=tiny_bert)
    found = [(r["chain"], r["step"], r["text"], r["energy"]) for r in run]
    assert found == expected


def test_networks_against_plain_transformers(networks: dict[str, str], tiny_bert: Any) -> None:
    texts = ["the cat sat", "unhappy", "a mat on a mat, sleeping."]
    sequences, tokenizer, cpu = tiny_bert.codec.encode(texts), tiny.tokenizer(), torch.device("cpu")
    classifier = Classifier.load(networks["classifier"], "stormy", cpu)
    causal, embedding = Causal.load(networks["causal"], cpu), Embedding.load(networks["encoder"], "the mat", cpu)
    one = hf.AutoModelForSequenceClassification.from_pretrained(networks["classifier"]).eval()
    two = hf.AutoModelForCausalLM.from_pretrained(networks["causal"]).eval()
    three = hf.AutoModel.from_pretrained(networks["encoder"]).eval()

    def mean(text: str) -> torch.Tensor:
        return three(**tokenizer(text, return_tensors="pt", return_token_type_ids=False)).last_hidden_state[0].mean(0)

    with torch.inference_mode():
        for i, text in enumerate(texts):
            inputs = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
            ids = inputs["input_ids"]
            wanted = -one(**inputs).logits.log_softmax(-1)[0, 1]
            assert float(classifier.energy(sequences, texts)[i]) == pytest.approx(float(wanted), abs=1e-4)
            log_p = two(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None]).sum()
            assert float(causal.energy(sequences, texts)[i]) == pytest.approx(-float(log_p), abs=1e-3)
            distance = 1 - torch.cosine_similarity(mean(text), mean("the mat"), dim=0)
            assert float(embedding.energy(sequences, texts)[i]) == pytest.approx(float(distance), abs=1e-4)


def test_networks_steer(networks: dict[str, str], tiny_bert: Any) -> None:
    experts = [f"classifier:{networks['classifier']}:stormy:3", f"causal:{networks['causal']}:0.1"]
    experts.append(f"embedding:{networks['encoder']}:the cat:1")
    samples = maskropolis.sample(tiny_bert, **QUICK, experts=experts)
    classifier = Classifier.load(networks["classifier"], "stormy", torch.device("cpu"))
    plain = maskropolis.sample(tiny_bert, **QUICK)

    def said(texts: list[str]) -> float:
        return float(classifier.energy(tiny_bert.codec.encode(texts), texts).mean())

    assert said(samples.texts) < said(plain.texts)


BAD = [
    ({"experts": ["keyword:sea"]}, "malformed"),
    ({"experts": ["keyword:sea:five"]}, "malformed"),
    ({"experts": ["keyword:sea:nan"]}, "malformed"),
    ({"experts": ["keywrod:sea:5"]}, "did you mean 'keyword'"),
    ({"experts": ["regex:(:1"]}, "malformed"),
    ({"experts": ["length:4:-1"]}, "negative weight"),
    ({"experts": ["classifier:DIR:calm:-1"]}, "negative weight"),
    ({"experts": ["causal:nowhere:1"]}, "cannot load the expert"),
    ({"experts": ["python:nowhere:f:1"]}, "cannot import"),
    ({"experts": [f"python:{__name__}:QUICK:1"]}, "expected a function"),
    ({"experts": [f"python:{__name__}:wrong_shape:1"]}, r"shape \[3, 2\]"),
    ({"experts": [f"python:{__name__}:not_a_number:1"]}, "returned nan"),
    ({"experts": [f"python:{__name__}:fails:1"]}, "RuntimeError: out of luck"),
    ({"experts": [f"python:{__name__}:always_infinite:1"]}, "forbids the start"),
    ({"experts": ["keyword:cat:1"], "kernel": "gibbs"}, "'gibbs' has none"),
    ({"require": ["cat"], "forbid": ["Cat"]}, "nobody can satisfy"),
    ({"require": ["%"]}, "cannot be written"),
    ({"require": ["cat", "sat", "unhappy", "mat", "on", "sleeping"]}, "no place for the required word"),
    ({"allow": ["lettres"]}, "did you mean 'letters'"),
    ({"allow": ["digits"]}, "no token"),
    ({"allow": ["5-2:letters"]}, "out of range"),
    ({"allow": ["=cat,zebra"]}, "'zebra' is not one token"),
    ({"allow": ["@/no/such/file"]}, "cannot read the tokens"),
    ({"allow": ["=cat,sat"], "no_repeat": 1}, "no token can stand"),
    ({"allow": ["=cat"]}, "cannot move"),
    ({"no_repeat": 0}, "out of range"),
    ({"require": ["cat"], "length": None, "text": "the mat"}, "breaks the constraint require:cat"),
    ({"forbid": ["mat"], "length": None, "text": "the mat"}, "breaks the constraint forbid:mat"),
]


@pytest.mark.parametrize(("settings", "message"), BAD, ids=lambda value: value if isinstance(value, str) else None)
def test_bad_input_is_one_clear_line(tiny_bert: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MaskropolisError, match=message) as caught:
        maskropolis.sample(tiny_bert, **QUICK | settings)
    assert "\n" not in str(caught.value)


def test_a_label_that_does_not_exist(networks: dict[str, str], tiny_folder: Path) -> None:
    cpu = torch.device("cpu")
    with pytest.raises(InputError, match="did you mean 'stormy'"):
        Classifier.load(networks["classifier"], "storm", cpu)
    with pytest.raises(ModelError, match="weights are missing"):
        Classifier.load(str(tiny_folder), "LABEL_0", cpu)


def test_the_command_rewrites_the_lines_of_a_file(tiny_folder: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sat on the mat.\nunhappy cat\na cat, sleeping\n")
    arguments = ["sample", "--model", str(tiny_folder), "--from", str(lines), "--burn-in", "1", "--thin", "1"]
    steering = ["--expert", "keyword:mat:4", "--expert", "regex:s.t:-1", "--forbid", "dog", "--no-repeat", "3"]
    done = CliRunner().invoke(cli.application, [*arguments, *steering, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    run = maskropolis.open_run(tmp_path / "run")
    assert [record["chain"] for record in run] == [0, 1, 2]
    assert run.config["texts"] == lines.read_text().splitlines()
    both = CliRunner().invoke(cli.application, [*arguments, "--text", "a cat"])
    assert isinstance(both.exception, MaskropolisError)
