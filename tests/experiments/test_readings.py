"""The experiment of the five readings in its short setting: every step, gone on with, on one small text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import causal
import pytest
from scripts import ROOT, command

run = command("readings")

import page  # noqa: E402
import readings  # noqa: E402
from readings import SHORT, Job  # noqa: E402

import maskropolis  # noqa: E402
from maskropolis.errors import InputError  # noqa: E402

EXCERPT = ROOT / "tests/data/time_machine.txt"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A short job with a small judge, trained and measured."""
    judge = causal.save(tmp_path_factory.mktemp("judge"))
    made = Job(EXCERPT, tmp_path_factory.mktemp("work"), SHORT, judge=str(judge))
    made.train()
    made.measure()
    return made


def test_every_model_has_its_numbers_and_every_reading_its_texts(job: Any) -> None:
    found = job.results()
    assert list(found["models"]) == ["storybook", "mdlm", "gaussian-dae"]
    for name, about in found["models"].items():
        numbers = about["numbers"]
        assert {key for key, value in numbers.items() if value is None} == (
            set() if name == "gaussian-dae" else {"gaussian", "denoising"}
        )
        assert (about["training"] or {}).get("step") == (None if name == "storybook" else 3)
    written = {(row["model"], row["sampler"]) for row in found["systems"]}
    assert len(written) == 3 * 4 + 1 and ("gaussian-dae", "langevin") in written
    assert all(row["seconds_per_text"] > 0 and len(row["examples"]) == 3 for row in found["systems"])
    assert found["books"]["judge_perplexity_per_token"]["value"] > 1
    assert found["versions"]["maskropolis"] and found["machine"]["cores"]
    assert str(ROOT) not in json.dumps(found) and str(job.work) not in json.dumps(found)


def test_the_numbers_are_those_of_the_package(job: Any) -> None:
    """One token hidden at a time: what `score` says."""
    found = job.results()["models"]["storybook"]["numbers"]["pseudo_likelihood"]["value"]
    scores = maskropolis.score(job.sentences)
    assert found == pytest.approx(-sum(s.pll for s in scores) / sum(len(s.tokens) for s in scores), abs=1e-4)


def test_what_is_done_is_not_done_again(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("done again")

    monkeypatch.setattr(readings, "train_mlm", never)
    monkeypatch.setattr(readings.maskropolis, "load", never)
    monkeypatch.setattr(readings, "evaluate", never)
    job.train()
    job.measure()


def test_a_part_that_is_missing_is_made_again_and_the_same(job: Any) -> None:
    file = job._file("mdlm", "samples-diffusion")
    before = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    job.measure()
    assert json.loads(file.read_text(encoding="utf-8"))["texts"] == before["texts"]


def test_tables_and_figure(job: Any) -> None:
    job.table()
    job.figure()
    table = (job.out / "results.md").read_text(encoding="utf-8")
    assert "Figures of a trial" in table and "| gaussian-dae | score | langevin |" in table
    assert (job.out / "readings.png").read_bytes()[:4] == b"\x89PNG"
    note = job.work / "page.md"
    note.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n", encoding="utf-8")
    page.put_into(note, table)
    text = note.read_text(encoding="utf-8")
    assert text.startswith("before") and text.endswith("after\n") and table in text and "old" not in text


def test_the_page_shows_what_results_json_says() -> None:
    text, file = readings.PAGE.read_text(encoding="utf-8"), readings.HERE / "results.json"
    shown = text.partition(page.BEGIN)[2].partition(page.END)[0].strip()
    if file.is_file():
        assert shown.startswith(page.tables(json.loads(file.read_text(encoding="utf-8"))))
    else:
        assert shown == "Not measured yet."


def test_what_cannot_be_done_says_why(job: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = Job(EXCERPT, tmp_path, SHORT)
    with pytest.raises(InputError, match="'mdlm' is not trained yet; run the step train first"):
        fresh.model("mdlm")
    with pytest.raises(InputError, match="run the steps train and measure first"):
        fresh.table()
    with pytest.raises(InputError, match="run the step table first"):
        fresh.figure()
    with pytest.raises(SystemExit) as ended:
        run.main(["train", "--books", str(tmp_path / "none.tar.xz"), "--work", str(tmp_path), "--short"])
    assert ended.value.code == 2 and "there is no file or folder" in capsys.readouterr().err
