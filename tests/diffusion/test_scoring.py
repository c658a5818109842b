"""`score --metric nelbo|d3pm|any-order`: the bounds beside the other scores, in Python and on the command line."""

from __future__ import annotations

import json
import sys

import pytest

from maskropolis import cli, score
from maskropolis.errors import InputError
from maskropolis.targets.diffusion.bounds import BoundSettings, enumerated_bound

TEXTS = ["the cat sat", "a mat"]


def test_bounds_agree_with_the_enumeration_within_their_errors(tiny_bert):
    names = ["nelbo", "d3pm", "any-order"]
    found = score(TEXTS, tiny_bert, metric=names, samples=400, time_steps=3)
    for one in found:
        row = tiny_bert.codec.encode([one.text])
        for name in names:
            exact = enumerated_bound(tiny_bert, row, BoundSettings(name, time_steps=3)).value
            assert abs(one.value(name) - exact) < 5 * one.bounds[name].error
    assert found[0].value("d3pm") > found[0].value("nelbo") or found[0].bounds["d3pm"].error > 0


def test_all_leaves_the_bounds_out(tiny_bert):
    assert score("a mat", tiny_bert, metric="all")[0].bounds == {}
    with pytest.raises(InputError, match="did you mean 'nelbo'"):
        score("a mat", tiny_bert, metric="nelbos")


def _run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["maskropolis", "score", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_command_line(monkeypatch, capfd, tiny_folder):
    bounds = ("--metric", "nelbo", "--metric", "d3pm", "--time-steps", "4", "--copies", "8")
    assert _run(monkeypatch, "--text", TEXTS[0], "--text", TEXTS[1], *bounds, "-m", str(tiny_folder)) == 0
    out, err = capfd.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert all(row["nelbo"] > 0 and row["nelbo_error"] >= 0 and row["d3pm"] > 0 for row in rows)
    assert "nelbo(copies=8,seed=0),d3pm(log-linear,T=4,copies=8,seed=0)" in err
    assert "nats a token, perplexity at most" in err
    # An estimate depends on the line alone, not on what is scored with it.
    assert _run(monkeypatch, "--text", TEXTS[0], *bounds, "-m", str(tiny_folder)) == 0
    assert json.loads(capfd.readouterr()[0])["nelbo"] == pytest.approx(rows[0]["nelbo"], abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--metric", "d3pm", "--time-steps", "0"), "0 time steps are too few"),
        (("--metric", "nelbo", "--copies", "7"), "even number"),
        (("--metric", "d3pm", "--noise", "sine"), "unknown noise schedule 'sine'"),
    ],
)
def test_bad_settings_are_one_line(monkeypatch, capfd, tiny_folder, arguments, says):
    assert _run(monkeypatch, "--text", "a", *arguments, "-m", str(tiny_folder)) == 2
    err = capfd.readouterr()[1]
    assert says in err and len(err.splitlines()) == 1
