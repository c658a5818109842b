"""`generate` and `sample --method diffusion|mask-predict`, and chains that start from a diffusion."""

from __future__ import annotations

import json
import sys

import pytest

from maskropolis import cli, sample
from maskropolis.decoders.mask_predict import mask_predict
from maskropolis.errors import InputError
from maskropolis.generation import SAMPLERS, generate


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_fills_templates_and_keeps_their_context(tiny_bert, sampler):
    found = generate(tiny_bert, template="the [MASK] sat on [MASK] [MASK].", chains=3, sampler=sampler, seed=2)
    assert len(found.texts) == 3
    for record in found.records:
        assert tiny_bert.mask_token not in record["token_ids"]
        words = tiny_bert.codec.pieces(record["token_ids"])
        assert (words[1], words[3:5], words[7]) == ("the", ["sat", "on"], ".")
    assert sampler in found.signature and "target:none" in found.signature


def test_a_sequence_depends_on_seed_and_number_alone(tiny_bert):
    both = generate(tiny_bert, length=[4, 7], chains=2, sampler="ancestral", steps=16, seed=5)
    alone = generate(tiny_bert, length=4, chains=1, sampler="ancestral", steps=16, seed=5)
    assert both.records[0]["token_ids"] == alone.records[0]["token_ids"]
    other = generate(tiny_bert, length=4, chains=1, sampler="ancestral", steps=16, seed=6)
    assert other.records[0]["token_ids"] != alone.records[0]["token_ids"]


def test_prefixes_blocks_remasking_and_temperature_together(tiny_bert):
    found = generate(
        tiny_bert, template="the cat [MASK] [MASK] [MASK] [MASK]", chains=2, steps=6, block=2, remasking="rescale=0.3",
        temperature=0.7, top_p=0.9,
    )  # fmt: skip
    assert all(text.startswith("the cat") for text in found.texts) and found.rows <= 24
    assert "block=2" in found.signature and "rescale=0.3" in found.signature


def test_mask_predict_is_the_decoder_of_translation(tiny_bert):
    found = generate(tiny_bert, method="mask-predict", length=5, chains=1, steps=4)
    expected = mask_predict(tiny_bert, tiny_bert.codec.blank([5]), 4)
    assert found.records[0]["token_ids"] == expected.sequences.tokens[0].tolist()


def test_chains_can_start_from_a_diffusion(tiny_bert):
    """The first state of the chain is the sample of first-hitting with the same seed; then it moves on, exactly."""
    from maskropolis.sampling import SamplingConfig, prepare

    config = SamplingConfig(lengths=(6,), chains=3, start="diffusion", seed=4, burn_in=1, thin=1)
    started = prepare(tiny_bert, config).state.sequences.tokens.tolist()
    assert started == [
        r["token_ids"] for r in generate(tiny_bert, length=6, chains=3, sampler="first-hitting", seed=4).records
    ]
    samples = sample(tiny_bert, length=6, chains=3, start="diffusion", seed=4, burn_in=1, thin=1)
    assert "start:diffusion" in samples.signature and "[exact]" in samples.signature and len(samples) == 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "difusion"}, "did you mean 'diffusion'"),
        ({"sampler": "ancestrel"}, "did you mean 'ancestral'"),
        ({"steps": 0}, "too few"),
        ({"block": 0}, "block of 0"),
        ({"remasking": "cap"}, "malformed"),
        ({"remasking": "cap=0.1", "sampler": "margin"}, "never masks a token again"),
        ({"choice_temperature": 1.0}, "has no order"),
        ({"sampler": "first-hitting", "steps": 5}, "no steps to choose"),
        ({"seed": -1}, "seed -1"),
        ({"stepz": 1}, "did you mean 'steps'"),
        ({"noise": "sine"}, "unknown noise schedule"),
    ],
)
def test_settings_that_make_no_sense_are_named(tiny_bert, settings, says):
    with pytest.raises(InputError, match=says):
        generate(tiny_bert, **settings)


@pytest.fixture
def run(monkeypatch, capfd, tiny_folder, tmp_path):
    """Runs `maskropolis sample …` in an empty folder: (exit code, standard output, standard error)."""

    def call(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["maskropolis", "sample", *arguments, "-m", str(tiny_folder)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capfd.readouterr()

    return call


def test_command_line(run, tmp_path):
    code, out, err = run("--method", "diffusion", "--steps", "8", "-c", "2", "-l", "4", "--noise", "cosine")
    assert code == 0 and len(out.splitlines()) == 2 and "ancestral(cosine,steps=8)" in err
    code, out, err = run(
        "--method", "diffusion", "--sampler", "margin", "-c", "2", "-l", "4", "--block-size", "2", "-o", "x.jsonl"
    )
    assert code == 0 and not out
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [row["chain"] for row in rows] == [0, 1] and all(row["text"] and row["energy"] > 0 for row in rows)
    assert run("--method", "mask-predict", "-c", "1", "-l", "4")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--method", "diffuse"), "unknown method 'diffuse'"),
        (("--method", "diffusion", "--kernel", "block"), "--kernel belongs to --method mh"),
        (("--method", "diffusion", "--out", "run"), "--out belongs to --method mh"),
        (("--method", "mask-predict", "--noise", "cosine"), "--noise belongs to --method diffusion"),
        (("--method", "diffusion", "--steps", "0"), "0 steps are too few"),
        (("--start", "difusion"), "did you mean 'diffusion'"),
    ],
)
def test_bad_options_are_one_line(run, arguments, says):
    code, _, err = run(*arguments)
    assert code == 2 and says in err and len(err.splitlines()) == 1
