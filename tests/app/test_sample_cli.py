"""`maskropolis sample` and `maskropolis resume` as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import maskropolis
from maskropolis import cli

QUICK = ["--chains", "2", "--burn-in", "1", "--thin", "1", "--samples", "2"]


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `maskropolis ARGUMENTS`."""
    monkeypatch.setattr(sys, "argv", ["maskropolis", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


@pytest.fixture
def command(tiny_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def call(*arguments: object) -> tuple[int, str, str]:
        model = ["--model", tiny_folder] if arguments[0] == "sample" else []
        return run(capsys, monkeypatch, arguments[0], *model, *arguments[1:])

    return call


def test_prints_samples_and_signature(command) -> None:  # type: ignore[no-untyped-def]
    code, out, err = command("sample", "--length", "4", *QUICK)
    assert code == 0 and len(out.splitlines()) == 4
    energies = [float(line.split()[0]) for line in out.splitlines()]
    assert all(energy > 0 for energy in energies)
    assert err.splitlines()[-1].startswith("maskropolis|model:") and "accepted" in err


def test_tempering_says_how_often_it_swaps(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """In memory and from a run folder alike, and after the run was gone on with."""
    asked = ("sample", "--length", "4", "--kernel", "tempering:levels=3,adapt=4", *QUICK)
    said = command(*asked)[2].splitlines()
    assert said[-2].startswith("swaps between neighbouring temperatures: ") and "ladder 1, " in said[-2]
    assert command(*asked, "--out", tmp_path / "run")[2].splitlines()[-2] == said[-2]
    assert "swaps" in command("resume", tmp_path / "run", "--steps", "40")[2]
    assert "swaps" not in command("sample", "--length", "4", *QUICK)[2]


@pytest.mark.parametrize(
    ("arguments", "specification"),
    [
        (["--block-size", "3"], "block(k=3)"),
        (["--contiguous"], "block(contiguous=True)"),
        (["--scan", "left-to-right"], "single-site(scan=left-to-right)"),
        (["--kernel", "gibbs", "--top-k", "4"], "gibbs(top_k=4)"),
        (["--kernel", "block:k=3", "--top-k", "4"], "k=3"),
        (["--kernel", "block(k=3)", "--top-k", "4"], "k=3"),
        (["--proposal-temperature", "1.5"], "proposal_temperature=1.5"),
    ],
)
def test_kernel_options(command, arguments: list[str], specification: str) -> None:  # type: ignore[no-untyped-def]
    code, _, err = command("sample", "--length", "4", *QUICK, *arguments)
    assert code == 0 and specification in err.splitlines()[-1]


def test_output_file(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "samples.jsonl"
    code, out, _ = command("sample", "--length", "4", *QUICK, "-o", file)
    assert code == 0 and out == "" and len(file.read_text().splitlines()) == 4
    before = file.read_text()
    code, _, err = command("sample", "--length", "4", *QUICK, "-o", file)
    assert code == 2 and "exists; pass --overwrite" in err and file.read_text() == before
    assert command("sample", "--length", "4", *QUICK, "-o", file, "--overwrite")[0] == 0
    code, out, _ = command("sample", "--length", "4", *QUICK, "-o", "-")
    assert code == 0 and [json.loads(line)["chain"] for line in out.splitlines()] == [0, 1, 0, 1]


def test_run_folder(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "run"
    code, out, err = command("sample", "--length", "4", *QUICK, "--out", folder)
    assert code == 0 and len(out.splitlines()) == 2 and f"4 samples in {folder}/samples, 12 of 12 steps" in err
    code, _, err = command("sample", "--length", "4", *QUICK, "--out", folder)
    assert code == 2 and f"maskropolis resume {folder}" in err and len(err.splitlines()) == 1
    code, _, err = command("resume", folder)
    assert code == 0 and "--steps with more than 12 extends it" in err
    code, out, err = command("resume", folder, "--steps", "20")
    assert code == 0 and "20 of 20 steps" in err and "steps:20" in err.splitlines()[-1]
    assert maskropolis.open_run(folder).steps == 20
    code, _, err = command("resume", folder, "--steps", "3")
    assert code == 2 and "below the 20 steps already made" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--length", "twelve"], 'length "twelve" is malformed'),
        (["--length", "0"], "length 0 is too small"),
        (["--length", "500"], "limit of 48"),
        (["--template", "the cat"], "nothing free"),
        (["--text", ""], "is empty"),
        (["--kernel", "singel-site"], "did you mean 'single-site'"),
        (["--block-size", "0"], "k = 0 is out of range"),
        (["--top-k", "0"], "top-k 0 is out of range"),
        (["--temperature", "-1"], "temperature -1.0 is out of range"),
        (["--temperature", "warm"], "should be a valid number"),
        (["--schedule", "cosin"], "did you mean 'cosine'"),
        (["--schedule", "linear"], "a linear schedule needs a final temperature"),
        (["--schedule", "constant", "--start", "hot"], "unknown start 'hot'"),
        (["--chains", "0"], "chains 0 is out of range"),
        (["--samples", "0"], "samples 0 is out of range"),
        (["--out", "a", "-o", "b"], "expected one of --out"),
        (["--checkpoint-every", "5"], "a run folder, --out"),
        (["--out", "no/such/folder"], "does not exist; create it first"),
        (["-o", "no/such/file.jsonl"], "does not exist; create it first"),
        (["--token-budget", "0"], "token budget of 0"),
        (["--device", "cuda:9"], "the device 'cuda:9' is not there"),
        (["--lenght", "5"], "see `maskropolis sample --help`"),
    ],
)
def test_bad_input(command, arguments: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    code, out, err = command("sample", *arguments)
    assert code == 2 and out == ""
    assert message in err and len(err.splitlines()) == 1 and err.startswith("error: ")


def test_bad_run_folders(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for arguments in (["resume", tmp_path], ["resume", tmp_path / "nothing"]):
        code, _, err = command(*arguments)
        assert code == 2 and "start one with `maskropolis sample --out" in err and len(err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_signals_to_a_process(command, tiny_folder: Path, tmp_path: Path, number: int, code: int) -> None:  # type: ignore[no-untyped-def]
    """The exit code, the advice, and equality of the resumed run with one that was left alone."""
    arguments = ["--length", "5", "--chains", "3", "--thin", "1", "--steps", "600"]
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "maskropolis.cli", "sample", "--model", tiny_folder, *arguments, "--out", folder,
         "--checkpoint-every", "40"],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    while not list((folder / "checkpoint").glob("*.json")):
        time.sleep(0.05)
    process.send_signal(number)
    assert process.stderr is not None
    err = process.stderr.read()
    assert process.wait() == code
    if number != signal.SIGKILL:
        assert f"go on with: maskropolis resume {folder}" in err and "interrupted after" in err
    assert command("resume", folder)[0] == 0
    alone = tmp_path / "alone"
    assert command("sample", *arguments, "--out", alone)[0] == 0
    assert maskropolis.open_run(folder).samples() == maskropolis.open_run(alone).samples()
