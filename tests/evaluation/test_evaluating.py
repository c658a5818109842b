"""Evaluations of several systems, and the commands `evaluate` and `rate` as a user meets them."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import Any

import causal
import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from maskropolis import HuggingFaceMaskedLM, cli, sample, score
from maskropolis.errors import InputError
from maskropolis.evaluation import evaluating
from maskropolis.evaluation.evaluating import Questions, evaluate
from maskropolis.evaluation.intervals import Estimate, Resampling
from maskropolis.evaluation.judging.judge import Judge, perplexity
from maskropolis.evaluation.systems import System, read_systems
from maskropolis.evaluation.tables import MEASURES, cell, to_markdown

FEW = Resampling(resamples=50, halves=20)
TEXTS = ["the cat sat on the mat.", "a cat sat, the cat sat.", "unhappy", "the cat sat on the mat.", "on a mat", "cat"]


@pytest.fixture(scope="module")
def judge_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return causal.save(tmp_path_factory.mktemp("judge"))


@pytest.fixture(scope="module")
def run_folder(tiny_bert: HuggingFaceMaskedLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "my-run"
    sample(tiny_bert, length=5, chains=6, samples=3, burn_in=1, thin=2, seed=4, out=folder, progress=False)
    return folder


def test_every_measure_is_what_its_parts_say(
    tiny_bert: HuggingFaceMaskedLM, judge_folder: Path, tmp_path: Path
) -> None:
    judge = Judge.load(str(judge_folder))
    (tmp_path / "books.txt").write_text("The cat sat on a hat.\nUnhappy\n")
    references = [[*TEXTS[:-1], "dog"]]
    questions = Questions(judge, tiny_bert, [str(tmp_path / "books.txt")], references, resampling=FEW)
    found = evaluate({"mine": TEXTS, "other": TEXTS[::-1]}, questions)
    mine, other = (result.measures for result in found.results)
    assert list(MEASURES) == [name for name in MEASURES if name in mine] and set(mine) == set(MEASURES)

    judged = list(judge.judge(TEXTS))
    scores = score(TEXTS, tiny_bert)
    tokens = sum(len(one.tokens) for one in scores)
    expected = {
        "judge_perplexity_per_token": perplexity(judged),
        "judge_perplexity_per_word": perplexity(judged, per_word=True),
        "judge_log_likelihood_per_word": sum(one.log_likelihood for one in judged) / 23,
        "energy_norm": np.mean([one.norm_energy for one in scores]),
        "energy_raw": np.mean([one.raw_energy for one in scores]),
        "energy_norm_per_token": sum(one.norm_energy for one in scores) / tokens,
        "words": 27 / 6,
        "unique": 5 / 6,
        "near_duplicates": 2 / 6,
        "repetition_1": 4 / 27,
        "copied_run": (4 + 3 + 1 + 4 + 2 + 1) / 6,
        "copied_share": (4 + 3 + 1 + 4 + 2 + 1) / 27,
        "copied_whole": 2 / 6,
        "bleu": BLEU().corpus_score(TEXTS, references).score,
        "chrf": CHRF().corpus_score(TEXTS, references).score,
    }
    for name, value in expected.items():
        assert mine[name].value == pytest.approx(value, rel=1e-5), name
    order_free = set(mine) - {"bleu", "chrf"}
    assert all(other[name].value == pytest.approx(mine[name].value, rel=1e-5) for name in order_free)
    assert all(one.low <= one.value + 1e-9 and one.value - 1e-9 <= one.high for one in mine.values())
    for part in (judge.signature, "training:", "model:tiny-bert@", "words:13a", "seed:0", "bleu(nrefs:1", "chrf("):
        assert part in found.signature


def test_each_different_text_is_judged_once(judge_folder: Path) -> None:
    told: list[tuple[str, int]] = []
    judge = Judge.load(str(judge_folder))
    evaluate({"a": TEXTS, "b": TEXTS}, Questions(judge, resampling=FEW), lambda what, n, total: told.append((what, n)))
    assert sum(n for what, n in told if what == "judging") == 5


def test_states_of_one_chain_are_resampled_together(run_folder: Path) -> None:
    (system,) = read_systems([str(run_folder)])
    assert system.groups == tuple(range(6)) * 3 and system.name == "my-run" and "kernel" in system.signature
    (last,) = read_systems([str(run_folder)], last=True)
    assert last.groups == tuple(range(6)) and last.texts == system.texts[-6:]
    apart = System.of("apart", system.texts)
    for name in ("words", "distinct_1"):
        chained, free = (evaluate([one]).results[0].measures[name] for one in (system, apart))
        assert chained.value == free.value
        assert (chained.low, chained.high) != (free.low, free.high)


def test_equal_names_become_paths(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("one\ntwo\n")
    sources = [str(tmp_path / folder / "x.txt") for folder in ("a", "b")]
    assert [system.name for system in read_systems(sources)] == sources
    with pytest.raises(InputError, match="is named twice"):
        read_systems([sources[0], sources[0]])


def test_equal_sizes_on_request() -> None:
    system = System.of("x", [str(i) for i in range(20)])
    some = system.some(5, seed=1)
    assert len(set(some.texts)) == 5 and list(some.texts) == sorted(some.texts, key=int)
    assert some == system.some(5, seed=1) != system.some(5, seed=2)
    with pytest.raises(InputError, match="holds 20 sentences; expected at least 21"):
        system.some(21, seed=0)


def test_near_duplicates_are_sought_among_a_drawn_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "MOST_PAIRED", 4)
    found = evaluate({"x": ["a b c"] * 9}, Questions(resampling=FEW))
    assert found.results[0].measures["near_duplicates"].value == 1 and "(of 4)" in found.signature


def test_tables_say_what_is_missing_and_escape(judge_folder: Path) -> None:
    found = evaluate({"a|b": ["one"], "c": TEXTS}, Questions(resampling=FEW))
    text = to_markdown(found)
    assert text.startswith("|  | a\\|b | c |\n| --- | ---: | ---: |\n| sentences | 1 | 6 |")
    row = next(line for line in text.splitlines() if line.startswith("| self-BLEU"))
    assert row.split("|")[2].strip() == "–"
    assert json.loads(json.dumps(found.to_json()))["systems"][0]["measures"]["self_bleu"]["value"] is None
    assert found.signature in text
    name = "judge_perplexity_per_token"
    assert cell(name, Estimate(27.4142, 25.9, 39990.4)) == "27.41 [25.9, 39,990]"
    assert cell(name, Estimate(math.inf)) == "∞" and cell(name, None) == "–"
    assert cell("unique", Estimate(0.5, 0.25, 1)) == "50.0 [25.0, 100.0]"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Runs `maskropolis …` in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("\n".join(TEXTS) + "\n")
    Path("b.jsonl").write_text("".join(json.dumps({"text": text, "chain": 0}) + "\n" for text in TEXTS[:4]))

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["maskropolis", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call


def test_evaluate_command(run: Any, judge_folder: Path, tiny_folder: Path, run_folder: Path) -> None:
    files = ("a.txt", "b.jsonl", str(run_folder))
    more = ("--judge", str(judge_folder), "-m", str(tiny_folder), "--resamples", "50", "--training", "a.txt")
    code, out, err = run("evaluate", *files, *more, "--json", "out.json", "--markdown", "out.md")
    assert code == 0, err
    found = json.loads(Path("out.json").read_text())
    assert [one["name"] for one in found["systems"]] == ["a", "b", "my-run"]
    assert found["systems"][1]["groups"] == 1 and found["systems"][1]["measures"]["words"]["low"] is None
    assert found["systems"][0]["measures"]["copied_whole"]["value"] == 1
    assert found["signature"] in out.replace("\n", "") and found["signature"] in Path("out.md").read_text()
    for words in ("judge: perplexity", "norm energy", "self-BLEU", "--sentences N", "b: 4 states of 1 chains"):
        assert words in out
    code, out, _ = run("evaluate", "a.txt", "--json", "-")
    assert code == 0 and json.loads(out)["systems"][0]["sentences"] == 6


BAD = {
    "no such file": (["none.txt"], "the input 'none.txt' does not exist"),
    "no run": (["."], "holds no run"),
    "existing": (["a.txt", "--json", "a.txt"], "the output 'a.txt' exists"),
    "references": (["a.txt", "b.jsonl", "--reference", "a.txt"], "'b' has 4 sentences, but reference 1 has 6 lines"),
    "no judge": (["a.txt", "--judge", "none.gguf"], "the GGUF file 'none.gguf' does not exist"),
    "too many": (["a.txt", "--sentences", "7"], "'a' holds 6 sentences; expected at least 7"),
    "confidence": (["a.txt", "--confidence", "2"], "a confidence of 2 is out of range"),
    "both to stdout": (["a.txt", "--json", "-", "--markdown", "-"], "cannot both go to standard output"),
    "training": (["a.txt", "--training", "no.txt", "--judge", "none.gguf"], "the input 'no.txt' does not exist"),
    "tokenizer": (["a.txt", "--tokenize", "bert"], "unknown tokenizer of words 'bert'"),
}


@pytest.mark.parametrize("case", BAD)
def test_evaluate_refuses_in_one_line(run: Any, case: str) -> None:
    arguments, message = BAD[case]
    code, _, err = run("evaluate", *arguments)
    assert code == 2 and message in err and err.count("\n") == 1 and "Traceback" not in err
    assert sorted(file.name for file in Path().iterdir()) == ["a.txt", "b.jsonl"]


def test_a_training_folder_without_text_is_refused(run: Any, tmp_path: Path) -> None:
    Path("empty").mkdir()
    code, _, err = run("evaluate", "a.txt", "--training", "empty")
    assert code == 2 and "the folder 'empty' holds no .txt files" in err


def test_rate_from_export_to_result(run: Any) -> None:
    code, out, err = run("rate", "export", "a.txt", "b.jsonl", "--per-system", "4", "--raters", "2", "--out", "study")
    assert code == 0 and "2 sheets of 8 sentences" in out, err
    key = json.loads(Path("study/key.json").read_text())
    system = {item["code"]: item["system"] for item in key["items"]}
    for rater in (1, 2):
        rows = list(csv.DictReader(Path(f"study/sheets/rater-{rater}.csv").read_text("utf-8-sig").splitlines()))
        for row in rows:
            row |= {"fluency": "3" if system[row["item"]] == "a" else "1", "coherence": "2"}
        with Path(f"filled-{rater}.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    code, out, err = run("rate", "import", "filled-1.csv", "filled-2.csv", "--key", "study", "--json", "result.json")
    assert code == 0, err
    result = json.loads(Path("result.json").read_text())
    assert result["means"]["fluency"]["a"]["value"] == 3 and result["alpha"] == {"fluency": 1.0, "coherence": None}
    assert result["comparisons"][0]["p"] == pytest.approx(2 / 16) and "+2.00" in out and "0.1250" in out
    code, _, err = run("rate", "import", "study/sheets/rater-1.csv", "--key", "study")
    assert code == 2 and "rater-1.csv: 16 answers missing" in err and err.count("\n") == 1
    code, _, err = run("rate", "export", "a.txt", "--out", "study", "--per-system", "2")
    assert code == 2 and "exists and is not an empty folder" in err


def test_other_questions(run: Any) -> None:
    code, *_ = run(
        "rate", "export", "a.txt", "--per-system", "2", "--out", "s", "--question", "fluency", "--question",
        "toxic=Is it harmful?", "--scale", "5",
    )  # fmt: skip
    assert code == 0
    key = json.loads(Path("s/key.json").read_text())
    assert [one["name"] for one in key["questions"]] == ["fluency", "toxic"] and key["scale"] == 5
    code, _, err = run("rate", "export", "a.txt", "--per-system", "2", "--out", "t", "--question", "toxic")
    assert code == 2 and "the question 'toxic' has no text" in err
