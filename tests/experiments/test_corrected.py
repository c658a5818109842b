"""The experiment on corrected samples, on tiny models, and the table that the page shows."""

from __future__ import annotations

import json

import causal
import pytest
from scripts import EXPERIMENTS, command

run = command("corrected")


def test_every_sweep_is_measured_and_the_page_has_the_table(tmp_path, tiny_folder, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{run.BEGIN}\n{run.END}\n\nafter\n")
    judge = str(causal.save(tmp_path / "judge"))
    given = ["--model", str(tiny_folder), "--judge", judge, "--out", str(tmp_path), "--page", str(page)]
    run.main([*given, "--tokens", "5", "--chains", "4", "--sweeps", "2"])
    results = json.loads((tmp_path / "results.json").read_text())
    assert [one["sweep"] for one in results["sweeps"]] == [0, 1, 2] and str(tmp_path) not in json.dumps(results)
    assert page.read_text() == run.written(page.read_text(), results)
    assert page.read_text().startswith("before") and page.read_text().endswith("after\n")
    with pytest.raises(SystemExit) as stopped:
        run.main([*given, "--tokens", "0"])
    assert stopped.value.code == 2 and "length 0 is too small" in capsys.readouterr().err


def test_the_page_shows_the_committed_results():
    results = json.loads((EXPERIMENTS / "corrected" / "results.json").read_text())
    assert run.written(run.PAGE.read_text(encoding="utf-8"), results) == run.PAGE.read_text(encoding="utf-8")
