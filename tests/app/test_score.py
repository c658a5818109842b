"""`maskropolis score` as a user meets it: good runs, and one clear line with exit code 2 for bad ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny

from maskropolis import HuggingFaceMaskedLM, cli, score


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any, tiny_folder: Path, tmp_path: Path) -> Any:
    """Runs `maskropolis score …` in an empty folder with the tiny model, standard input given as bytes."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: bytes = b"", model: str | None = None) -> Outcome:
        Path("stdin").write_bytes(stdin)
        with Path("stdin").open() as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            monkeypatch.setattr(sys, "argv", ["maskropolis", "score", *arguments, "-m", model or str(tiny_folder)])
            with pytest.raises(SystemExit) as stop:
                cli.main()
        Path("stdin").unlink()
        out, err = capfdbinary.readouterr()
        return Outcome(int(stop.value.code or 0), out.decode(), err.decode())

    return call


def refusal(outcome: Outcome) -> str:
    """The one line of an error with exit code 2."""
    assert outcome.code == 2
    lines = [line for line in outcome.err.splitlines() if not line.startswith("maskropolis|")]
    assert len(lines) == 1 and lines[0].startswith("error: "), outcome.err
    return lines[0]


def test_text_on_the_command_line(run: Any, tiny_bert: HuggingFaceMaskedLM) -> None:
    outcome = run("--text", "the cat sat", "--text", "a mat")
    assert outcome.code == 0
    assert [row["text"] for row in outcome.rows] == ["the cat sat", "a mat"]
    expected = [one.pll for one in score(["the cat sat", "a mat"], tiny_bert)]
    assert [row["pll"] for row in outcome.rows] == pytest.approx(expected, abs=1e-4)
    signature = outcome.err.splitlines()[0]
    assert "metric:pll|" in signature and "version:" in signature and "model:" in signature


def test_a_file_to_a_file(run: Any) -> None:
    Path("in.txt").write_text("the cat sat\nunhappying\n")
    outcome = run("in.txt", "--metric", "all", "--per-token", "-o", "out.jsonl")
    assert outcome.code == 0 and outcome.out == ""
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert list(rows[1]) == [
        "line", "text", "tokens", "pll", "pppl", "raw", "norm", "pll_word_l2r", "per_token",
    ]  # fmt: skip
    assert [one["token"] for one in rows[1]["per_token"]] == ["un", "##happy", "##ing"]
    assert sum(one["log_probability"] for one in rows[1]["per_token"]) == pytest.approx(rows[1]["pll"], abs=1e-4)
    assert "log_probability_word_l2r" in rows[1]["per_token"][0]


def test_standard_input_and_fields(run: Any) -> None:
    lines = b'{"s": "sat", "before": "the cat", "id": 7}\n{"s": "on", "before": "", "id": 8}\n'
    outcome = run(
        "-", "--format", "jsonl", "--text-field", "s", "--prefix-field", "before", stdin=lines
    )  # fmt: skip
    assert [(row["id"], row["text"], row.get("prefix"), row["tokens"]) for row in outcome.rows] == [
        (7, "sat", "the cat", 1),
        (8, "on", None, 1),
    ]


def test_parquet_there_and_back(run: Any) -> None:
    import pyarrow.parquet as pq

    Path("in.csv").write_text('n,text\n1,"the cat, sat"\n2,a mat\n')
    assert run("in.csv", "-o", "out.parquet").code == 0
    assert pq.read_table("out.parquet").column("text").to_pylist() == ["the cat, sat", "a mat"]
    assert [row["n"] for row in run("out.parquet").rows] == ["1", "2"]


def test_a_bad_line_keeps_what_was_done(run: Any) -> None:
    Path("in.txt").write_text("the cat\na mat\n\nsat\n")
    outcome = run("in.txt", "-o", "out.jsonl")
    assert "in.txt, line 3 is empty" in refusal(outcome)
    assert not Path("out.jsonl").exists()
    assert len(Path("out.jsonl.partial").read_text().splitlines()) == 2
    assert "unfinished run" in refusal(run("in.txt", "-o", "out.jsonl"))
    assert run("in.txt", "-o", "out.jsonl", "--overwrite", "--skip-empty").code == 0
    assert len(Path("out.jsonl").read_text().splitlines()) == 3 and not Path("out.jsonl.partial").exists()


def test_an_output_that_exists_is_kept(run: Any) -> None:
    Path("out.jsonl").write_text("precious\n")
    assert "--overwrite" in refusal(run("--text", "cat", "-o", "out.jsonl"))
    assert Path("out.jsonl").read_text() == "precious\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either a FILE"),
        (["in.txt", "--text", "cat"], "either a FILE"),
        (["nowhere.txt"], "'nowhere.txt' does not exist"),
        (["."], "is a folder"),
        (["--text", "cat", "--metric", "pl"], "did you mean 'pll'?"),
        (["--text", ""], "--text 1 is empty"),
        (["--text", "the " * 100], "more than the model's limit of 48"),
        (["--text", "cat", "-o", "no/where.jsonl"], "folder 'no' does not exist"),
        (["--text", "cat", "--prefix-field", "p"], "--text has no fields"),
        (["--text", "cat", "--device", "cuda:77"], "is not there"),
        (["--text", "cat", "--dtype", "float31"], "did you mean 'float32'?"),
        (["--text", "cat", "--token-budget", "0"], "token budget"),
        (["in.json"], ".json is none of"),
        (["in.jsonl", "--format", "jsonlines"], "did you mean 'jsonl'?"),
        (["in.jsonl"], "in.jsonl, line 2 is not JSON"),
        (["empty.txt"], "holds no sentences"),
    ],
)
def test_bad_input(run: Any, arguments: list[str], message: str) -> None:
    Path("in.txt").write_text("cat\n")
    Path("in.json").write_text("{}")
    Path("in.jsonl").write_text('{"text": "cat"}\n{"text": \n')
    Path("empty.txt").write_text("")
    assert message in refusal(run(*arguments))


def test_unknown_model(run: Any) -> None:
    assert "no model 'nobody/nothing'" in refusal(run("--text", "cat", model="nobody/nothing"))


def test_help_names_every_metric(run: Any) -> None:
    outcome = run("--help")
    assert outcome.code == 0 and "pll-word-l2r" in outcome.out and tiny.V


def test_an_unknown_format_is_refused_for_text_too(run: Any) -> None:
    assert "unknown format 'fasat'; did you mean 'fasta'?" in refusal(run("--text", "the cat", "--format", "fasat"))


def test_the_input_is_never_the_output(run: Any) -> None:
    Path("a.txt").write_text("the cat\n")
    assert "the output './a.txt' is the input" in refusal(run("a.txt", "-o", "./a.txt", "--overwrite"))
    assert Path("a.txt").read_text() == "the cat\n"


def test_memory_that_runs_out_is_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000 bytes")

    monkeypatch.setattr("maskropolis.models.load", full)
    assert "memory ran out" in refusal(run("--text", "the cat"))


def test_unknown_tokens_are_told(run: Any) -> None:
    assert run("--text", "the cat \u20ac").err.splitlines()[-1].startswith("warning: 1 of the tokens are unknown")
    assert "warning" not in run("--text", "the cat").err


def test_all_says_what_the_tokenizer_cannot_give(run: Any, tmp_path: Path) -> None:
    model = str(tiny.esm_folder(tmp_path))
    outcome = run("--text", "M K T", "--metric", "all", model=model)
    assert outcome.code == 0 and "norm" in outcome.rows[0] and "pll_word_l2r" not in outcome.rows[0]
    said = [line for line in outcome.err.splitlines() if line.startswith("left out")]
    assert said == ["left out pll-word-l2r: the tokenizer does not say which tokens form a word"]
    assert "which tokens form a word" in refusal(run("--text", "M K T", "--metric", "pll-word-l2r", model=model))
