"""`sample --from FILE`: any number of lines, in order, in bounded memory, and gone on with after a kill."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from runs import killed_at_write
from typer.testing import CliRunner

import maskropolis
from maskropolis import cli
from maskropolis.chains import portions
from maskropolis.errors import InputError, MaskropolisError
from maskropolis.sampling import sample_lines

SENTENCES = ["the cat sat on the mat.", "unhappy cat", "a mat, sleeping", "on a mat sat the cat", "the mat"]
QUICK = {"burn_in": 1, "thin": 1, "samples": 2, "seed": 3, "experts": ["keyword:mat:4"]}


@pytest.fixture
def three_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "PORTION", 3)


@pytest.fixture
def job(tiny_folder: Path, tmp_path: Path) -> Any:
    """Runs the command on seven lines; `job(output, …options)` gives its result."""
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{SENTENCES[n % 5]}\n" for n in range(7)))

    def call(output: Path | str, *options: str) -> Any:
        given = ["--burn-in", "1", "--thin", "1", "--samples", "2", "--seed", "3", "--expert", "keyword:mat:4"]
        arguments = ["sample", "--model", str(tiny_folder), "--from", str(lines), "-o", str(output), *given, *options]
        return CliRunner().invoke(cli.application, arguments)

    call.lines = lines  # type: ignore[attr-defined]
    return call


def test_lines_are_chains_of_one_run(tiny_bert: Any, three_together: None) -> None:
    """With the number of steps set, portions give what a run of all lines gives."""
    settings = QUICK | {"steps": 16, "burn_in": 0, "thin": 0}
    whole = maskropolis.sample(tiny_bert, text=SENTENCES, chains=5, **settings)
    parts = list(sample_lines(SENTENCES, tiny_bert, **settings))
    assert [(part.first, part.lines) for part in parts] == [(0, 3), (3, 2)]
    found = [record for part in parts for record in part.records]
    assert [record["chain"] for record in found] == sorted(record["chain"] for record in whole)
    expected = sorted(whole, key=lambda record: record["chain"])
    for one, other in zip(found, expected, strict=True):
        assert [one[k] for k in ("step", "text", "token_ids")] == [other[k] for k in ("step", "text", "token_ids")]
        assert one["energy"] == pytest.approx(other["energy"], abs=1e-4)
    assert sum(part.totals.samples for part in parts) == len(whole)


def test_memory_is_bounded(tiny_bert: Any, three_together: None) -> None:
    """From endless lines, only those of the portions asked for are read."""
    read = 0

    def endless() -> Any:
        nonlocal read
        for sentence in itertools.cycle(SENTENCES):
            read += 1
            yield sentence

    first, second = itertools.islice(sample_lines(endless(), tiny_bert, steps=2), 2)
    assert read == 6 and {record["chain"] for record in first.records} == {0, 1, 2}
    assert [record["chain"] for record in second.records][-1] == 5


@pytest.mark.parametrize("write", [1, 3, 5, 8])
def test_killed_and_gone_on_with(job: Any, tmp_path: Path, three_together: None, write: int) -> None:
    """Killed at a write, then resumed: byte for byte the file of an uninterrupted job."""
    alone, output = tmp_path / "alone.jsonl", tmp_path / "samples.jsonl"
    assert job(alone).exit_code == 0
    chains = [json.loads(line)["chain"] for line in alone.read_text().splitlines()]
    assert chains == [chain for chain in range(7) for _ in range(2)]
    assert killed_at_write(lambda: job(output), write)
    assert not output.exists()
    refused = job(output, "--resume", "--seed", "4") if write > 2 else job(tmp_path / "none.jsonl", "--resume")
    assert isinstance(refused.exception, MaskropolisError)
    again = (
        job(output, "--resume")
        if output.with_name("samples.jsonl.partial.json").exists()
        else job(output, "--overwrite")
    )
    assert again.exit_code == 0, again.output
    assert output.read_bytes() == alone.read_bytes()
    assert not list(tmp_path.glob("samples.jsonl.partial*"))


def test_a_signal_and_a_bad_line(
    job: Any, tmp_path: Path, three_together: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM in the second portion, then a line that is too long in the third: what was done is kept each time."""
    alone, output, ticks = tmp_path / "alone.jsonl", tmp_path / "samples.jsonl", itertools.count()
    assert job(alone).exit_code == 0
    good, real = job.lines.read_text(), portions.steps

    def interrupted(prepared: Any) -> Any:
        for step in real(prepared):
            if next(ticks) == 14:
                os.kill(os.getpid(), signal.SIGTERM)
            yield step

    monkeypatch.setattr(portions, "steps", interrupted)
    stopped = job(output)
    assert stopped.exit_code == 143 and "go on with the same command and --resume" in stopped.output
    monkeypatch.setattr(portions, "steps", real)
    job.lines.write_text(good + "cat " * 60 + "\n")
    bad = job(output, "--resume")
    assert isinstance(bad.exception, InputError)
    assert f"{job.lines}, line 8 has 62 tokens" in str(bad.exception) and "--resume" in str(bad.exception)
    job.lines.write_text(good)
    assert job(output, "--resume").exit_code == 0 and output.read_bytes() == alone.read_bytes()


BAD = [
    (["--length", "4"], "one of --from and --length"),
    (["--resume"], "nothing to resume"),
    (["--resume", "-o", "x.parquet"], "cannot be resumed"),
    (["--forbid", "cat"], "start of chain 0 breaks"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input(job: Any, tmp_path: Path, options: list[str], message: str) -> None:
    result = job(tmp_path / "samples.jsonl", *options)
    assert isinstance(result.exception, MaskropolisError) and message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_an_empty_line(job: Any, tmp_path: Path) -> None:
    job.lines.write_text("the cat\n\nthe mat\n")
    result = job(tmp_path / "samples.jsonl")
    assert "line 2 is empty; expected a sentence; remove it" in str(result.exception)


def test_a_line_with_a_mask(job: Any, tmp_path: Path) -> None:
    job.lines.write_text("the cat\nthe [MASK]\n")
    assert "line 2 holds a mask token; expected a complete text" in str(job(tmp_path / "samples.jsonl").exception)


def test_the_lines_are_never_the_output(job: Any) -> None:
    before = job.lines.read_text()
    assert "is the input; name another file" in str(job(job.lines, "--overwrite").exception)
    assert job.lines.read_text() == before


def test_a_kernel_that_would_adapt_past_the_burn_in_of_a_short_line_is_refused_at_once(
    tiny_folder: Path, tiny_bert: Any, tmp_path: Path
) -> None:
    kernel = "tempering:levels=3,adapt=5"
    (tmp_path / "two.txt").write_text("the cat sat on a mat\nthe\n")
    given = ["--model", str(tiny_folder), "--from", str(tmp_path / "two.txt"), "--burn-in", "4", "--kernel", kernel]
    result = CliRunner().invoke(cli.application, ["sample", *given])
    said = "adapt=5 needs a burn-in of at least 5 sweeps; it is 4"
    assert result.exit_code != 0 and said in str(result.exception) and not result.stdout
    with pytest.raises(InputError, match=said):
        sample_lines(["the"], tiny_bert, burn_in=4, kernel=kernel)
