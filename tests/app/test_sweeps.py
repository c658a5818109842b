"""`maskropolis sample --by-sweep`: what exact chains change in the samples of a diffusion."""

from __future__ import annotations

import json
import sys

import causal
import numpy as np
import pytest

from maskropolis import cli
from maskropolis.evaluation.judging.judge import Judge, perplexity
from maskropolis.evaluation.moving import Standing
from maskropolis.generation import generate


@pytest.fixture
def run(monkeypatch, capfd, tiny_folder, tmp_path):
    """Runs `maskropolis sample …` in an empty folder: (exit code, standard output, standard error)."""

    def call(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["maskropolis", "sample", *map(str, arguments), "-m", str(tiny_folder)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capfd.readouterr()

    return call


def below_header(text):
    lines = text.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.endswith("self-BLEU")) + 1 :]


def test_every_sweep_from_the_diffusion_on_is_written_and_measured(run, tiny_bert, tmp_path):
    judge = causal.save(tmp_path / "judge")
    code, out, err = run(
        "--start", "diffusion", "--by-sweep", "-n", 2, "-c", 3, "-l", 5, "-s", 4, "--judge", judge, "-o", "x.jsonl"
    )
    assert code == 0 and not out
    records = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [0] * 3 + [5] * 3 + [10] * 3
    started = generate(tiny_bert, length=5, chains=3, sampler="first-hitting", seed=4)
    assert [record["token_ids"] for record in records[:3]] == [record["token_ids"] for record in started.records]
    table = [line.split() for line in below_header(err)[:3]]
    assert [int(row[0]) for row in table] == [0, 1, 2]
    for sweep, row in enumerate(table):
        here = records[3 * sweep : 3 * sweep + 3]
        assert float(row[1]) == pytest.approx(np.mean([record["energy"] for record in here]), abs=0.006)
        expected = perplexity(Judge.load(str(judge)).judge([record["text"] for record in here]))
        assert float(row[4]) == pytest.approx(expected, rel=1e-3)
    assert "judge:judge@" in err and "start:diffusion" in err and "[exact]" in err


def test_without_a_judge_there_is_a_dash_and_the_last_states_are_shown(run):
    code, out, err = run("--by-sweep", "-n", 1, "-c", 2, "-l", 4)
    assert code == 0 and len(out.splitlines()) == 2
    assert all("–" in line for line in below_header(err)[:2])


def test_the_figures_of_a_set():
    found = Standing.of(["a b c", "a b d"], [1.0, 3.0])
    assert (found.energy, found.error) == (2.0, 1.0)
    assert found.distinct == 3 / 4 and 0 < found.self_bleu < 100 and np.isnan(found.perplexity)
    assert np.isnan(Standing.of(["a"], [1.0]).error)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--judge", "somewhere"), "--judge belongs to --by-sweep"),
        (("--by-sweep", "--out", "run"), "--out does not go with --by-sweep"),
        (("--by-sweep", "--steps", "9"), "--steps does not go with --by-sweep"),
        (("--by-sweep", "--judge", "nowhere"), "nowhere"),
        (("--method", "diffusion", "--by-sweep"), "--by-sweep belongs to --method mh"),
    ],
)
def test_options_that_contradict_each_other_are_one_line(run, arguments, says):
    code, _, err = run(*arguments)
    assert code == 2 and says in err and len(err.splitlines()) == 1
