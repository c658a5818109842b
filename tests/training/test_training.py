"""The run as a whole: it lowers the loss, resumes bit for bit, stops cleanly, and refuses what it should."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from maskropolis.errors import InputError, NumericalError, RunError
from maskropolis.runs.lock import locked
from maskropolis.training import checkpoint, display, optimisation
from maskropolis.training.data.batches import Batch
from maskropolis.training.loop import Interrupted, Settings, uses_bf16
from maskropolis.training.masked import measuring
from maskropolis.training.masked.mlm import train_mlm
from maskropolis.training.masked.prediction import Predictor
from maskropolis.training.objectives import Bert, UniformRate, Vocabulary


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture
def uninterrupted(options, tmp_path):
    train_mlm(options(), tmp_path / "whole")
    return weights(tmp_path / "whole")


def stop_at(monkeypatch, step, do):
    """Calls `do` at the end of a step."""
    usual = display.Display.on_step

    def on_step(self, progress, loss, spent):
        usual(self, progress, loss, spent)
        if progress.step == step:
            do()

    monkeypatch.setattr(display.Display, "on_step", on_step)


def test_a_short_run_lowers_the_loss_and_loads_with_transformers(options, tmp_path, saved):
    wanted = options(steps=60, learning_rate=5e-3, evaluate_every=30, data_note="CC0.", license="cc0-1.0", rows=8)
    result = train_mlm(wanted, tmp_path / "out", command=("maskropolis", "train", "mlm", "a b.txt"))
    points = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    losses = [p["validation_loss"] for p in points if "validation_loss" in p]
    assert result.masked.loss < losses[0] < math.log(400) and result.progress.step == 60
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert model(**tokenizer("The time traveller [MASK].", return_tensors="pt")).logits.shape[-1] == len(tokenizer)
    card = (tmp_path / "out/README.md").read_text()
    for said in ("cc0-1.0", "CC0.", "Seed 0", "'a b.txt'", f"{result.masked.perplexity:.4g}", result.signature):
        assert said in card
    assert "plotly" in (tmp_path / "out/loss.html").read_text()[:5000].lower()
    record = json.loads((tmp_path / "out/training.json").read_text())
    assert record["status"] == "finished" and record["step"] == 60 and record["versions"]["torch"]
    assert not (tmp_path / "out/checkpoint.safetensors").exists() and not (tmp_path / "out/data").exists()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(options, tmp_path, uninterrupted):
    train_mlm(options(), tmp_path / "again")
    train_mlm(options(seed=1), tmp_path / "other")
    assert weights(tmp_path / "again") == uninterrupted != weights(tmp_path / "other")


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_state_and_the_run_resumes_bit_for_bit(options, tmp_path, uninterrupted, monkeypatch, stop):
    with monkeypatch.context() as patched:
        stop_at(patched, 6, lambda: os.kill(os.getpid(), stop))
        with pytest.raises(Interrupted):
            train_mlm(options(), tmp_path / "out")
    assert json.loads((tmp_path / "out/training.json").read_text())["status"] == "interrupted"
    with pytest.raises(RunError, match="--resume goes on, --overwrite replaces"):
        train_mlm(options(), tmp_path / "out")
    with pytest.raises(RunError, match="other options: learning_rate, length"):
        train_mlm(options(length=12, learning_rate=1.0), tmp_path / "out", resume=True)
    train_mlm(options(), tmp_path / "out", resume=True)
    assert weights(tmp_path / "out") == uninterrupted
    points = [json.loads(line)["step"] for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert points == [5, 10, 12, 12]
    with pytest.raises(RunError, match="finished"):
        train_mlm(options(), tmp_path / "out", resume=True)


def test_a_killed_run_resumes_bit_for_bit(options, tmp_path, uninterrupted):
    """SIGKILL in the middle of step 7, after the checkpoint of step 4 and an evaluation that goes beyond it."""
    made = options()
    script = f"""
        import os, signal, torch
        from pathlib import Path
        from maskropolis.training import loop
        from maskropolis.training.masked.mlm import train_mlm
        from maskropolis.training.masked.options import Options
        torch.set_num_threads(1)
        usual = loop.Trainer.step
        def step(self, number, spent):
            if number == 6:
                os.kill(os.getpid(), signal.SIGKILL)
            return usual(self, number, spent)
        loop.Trainer.step = step
        train_mlm({made!r}, Path({str(tmp_path / "out")!r}))
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "out/checkpoint.safetensors").is_file() and not (tmp_path / "out/model.safetensors").exists()
    train_mlm(made, tmp_path / "out", resume=True)
    assert weights(tmp_path / "out") == uninterrupted


def test_a_run_killed_before_its_first_checkpoint_starts_over(options, tmp_path, uninterrupted, monkeypatch):
    def fail():
        raise ValueError

    with monkeypatch.context() as patched:
        stop_at(patched, 2, fail)
        with pytest.raises(ValueError):
            train_mlm(options(), tmp_path / "out")
    train_mlm(options(), tmp_path / "out", resume=True)
    assert weights(tmp_path / "out") == uninterrupted


def test_a_full_disk_is_one_line_and_the_older_checkpoint_stays(options, tmp_path, uninterrupted, monkeypatch):
    usual, calls = checkpoint.save_file, []

    def save(tensors, path, metadata):
        if "checkpoint" in str(path):
            calls.append(path)
        if len(calls) == 2:
            Path(path).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(tensors, path, metadata=metadata)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save_file", save)
        with pytest.raises(RunError, match=r"disk is full.*--resume"):
            train_mlm(options(), tmp_path / "out")
    assert not list((tmp_path / "out").glob(".*.partial"))
    assert json.loads((tmp_path / "out/training.json").read_text())["status"] == "failed"
    train_mlm(options(), tmp_path / "out", resume=True)
    assert weights(tmp_path / "out") == uninterrupted


def test_folders_that_are_in_use_or_somebody_elses(options, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    for flags in ({}, {"overwrite": True}):
        with pytest.raises(RunError, match="holds no training run"):
            train_mlm(options(), tmp_path / "mine", **flags)
    assert (tmp_path / "mine/thesis.txt").exists()
    with pytest.raises(RunError, match="nothing to resume"):
        train_mlm(options(), tmp_path / "nowhere", resume=True)
    with pytest.raises(RunError, match="is a file"):
        train_mlm(options(), tmp_path / "mine/thesis.txt")
    (tmp_path / "busy").mkdir()
    with locked(tmp_path / "busy"), pytest.raises(RunError, match="in use"):
        train_mlm(options(), tmp_path / "busy")


def test_overwrite_replaces_a_run(options, tmp_path):
    train_mlm(options(steps=2), tmp_path / "out")
    train_mlm(options(steps=3), tmp_path / "out", overwrite=True)
    assert json.loads((tmp_path / "out/training.json").read_text())["step"] == 3


def test_damaged_and_foreign_checkpoints(options, tmp_path, tiny, monkeypatch):
    with monkeypatch.context() as patched:
        stop_at(patched, 6, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Interrupted):
            train_mlm(options(), tmp_path / "out")
    state = tmp_path / "out/checkpoint.safetensors"
    with pytest.raises(RunError, match="another model"):
        checkpoint.load(state, torch.nn.Linear(2, 2))
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(RunError, match="damaged"):
        train_mlm(options(), tmp_path / "out", resume=True)


def test_changed_text_cannot_be_resumed(options, tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text((Path(__file__).parents[1] / "data/time_machine.txt").read_text())
    with monkeypatch.context() as patched:
        stop_at(patched, 6, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Interrupted):
            train_mlm(options(texts=(str(text),)), tmp_path / "out")
    text.write_text(text.read_text() + "One line more.\n")
    with pytest.raises(RunError, match="has changed"):
        train_mlm(options(texts=(str(text),)), tmp_path / "out", resume=True)


def test_patience_stops_a_run_that_does_not_improve(options, tmp_path):
    result = train_mlm(options(steps=400, learning_rate=1e-12, evaluate_every=1, patience=2, warmup=0), tmp_path / "o")
    assert result.progress.step < 400 and result.progress.stale == 2


def test_too_high_a_rate_is_named_when_the_loss_is_no_number(options, tmp_path):
    with pytest.raises(NumericalError, match="loss of step"):
        train_mlm(options(learning_rate=1e30, warmup=0, clip=1e30), tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mask_rate": 0.0}, "mask rate is 0"),
        ({"mask_rate": 1.01}, "mask rate is 1.01"),
        ({"objective": "brt"}, "did you mean 'bert'"),
        ({"length": 3}, "too short"),
        ({"rows": 0}, "rows is 0"),
        ({"alone": 2.0}, "single sentences"),
        ({"dropout": 1.0}, "dropout"),
        ({"epochs": 0.0}, "epochs"),
        ({"seed": -1}, "seed"),
        ({"steps": -5}, "number of steps is -5"),
        ({"minutes": -1.0}, "time limit"),
        ({"learning_rate": 0.0}, "peak is 0"),
        ({"precision": "fp8"}, "unknown precision"),
        ({"evaluate_every": 0}, "evaluate_every is 0"),
        ({"length": 100}, "reads at most 64"),
        ({"hold_out": 1e-9}, "validation split is empty"),
        ({"hold_out": 1.5}, "share held out"),
    ],
)
def test_bad_options_are_refused(options, tmp_path, changes, says):
    with pytest.raises(InputError, match=says):
        train_mlm(options(**changes), tmp_path / "out")


@pytest.mark.parametrize("choose", ["word", "span"])
def test_every_kind_of_run_runs(options, tmp_path, choose):
    changes = {"objective": "mixture", "choose": choose, "init": "scratch:tiny", "vocabulary_size": 400}
    bpe = {"vocabulary": "bpe", "shape": "modernbert"} if choose == "span" else {}
    result = train_mlm(options(steps=2, rate_high=0.9, dropout=0.1, precision="bf16", **changes, **bpe), tmp_path / "o")
    assert math.isfinite(result.masked.loss)


def test_pruning_through_the_whole_run(options, tmp_path):
    train_mlm(options(steps=2, prune=300, plain_marks=True, objective="uniform", minutes=1.0), tmp_path / "o")
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "o")
    assert model.config.vocab_size == 300 == len(AutoTokenizer.from_pretrained(tmp_path / "o"))


def test_the_rate_warms_up_and_falls_to_zero():
    rates = [optimisation.rate(1.0, 10, step, step / 100) for step in range(101)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == rates[9] == pytest.approx(0.91) and rates[100] == 0
    budget = optimisation.Budget(100, 60.0)
    assert budget.spent(10, 30.0) == 0.5 and budget.spent(70, 30.0) == 0.7 and budget.spent(10, 90.0) == 1.0


def test_only_matrices_decay(tiny):
    decayed, plain = optimisation.adamw(tiny, 1e-3, 0.1).param_groups
    assert decayed["weight_decay"] == 0.1 and plain["weight_decay"] == 0
    assert all(p.ndim > 1 for p in decayed["params"]) and all(p.ndim == 1 for p in plain["params"])


def test_a_pause_does_not_count_as_training_time(options, tmp_path, monkeypatch):
    from maskropolis.training import loop

    clock = iter(n + (1000.0 if n >= 9 else 0.0) for n in range(10_000))
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
    result = train_mlm(options(steps=8, evaluate_every=100, checkpoint_every=100), tmp_path / "out")
    assert result.progress.seconds == pytest.approx(8.0)


def test_precision_is_what_was_asked_for():
    assert uses_bf16("bf16") and not uses_bf16("fp32") and isinstance(uses_bf16("auto"), bool)
    with pytest.raises(InputError):
        replace(Settings(optimisation.Budget(1)), precision="half")


def test_measurements_of_a_model_that_knows_nothing_are_the_size_of_the_vocabulary(tiny, tokenizer, paragraphs):
    with torch.no_grad():
        for parameter in tiny.cls.parameters():
            parameter.zero_()
    words = Vocabulary.of(tokenizer, len(tokenizer))
    rows = np.array([tokenizer(line)["input_ids"][:16] for line in paragraphs if len(line) > 120])
    batch = Batch(rows, np.ones_like(rows, dtype=bool))
    masked = measuring.measure(Predictor(tiny), batch, Bert(), words)
    single = measuring.measure_single(Predictor(tiny), batch, words, per_row=3)
    assert masked.perplexity == pytest.approx(400, rel=1e-4) == single.perplexity
    assert single.positions == 3 * len(rows) and masked.error < 1e-5


def test_a_measurement_is_the_mean_of_the_losses_it_names(tiny, tokenizer, paragraphs):
    words = Vocabulary.of(tokenizer, len(tokenizer))
    rows = np.array([tokenizer(line)["input_ids"][:16] for line in paragraphs if len(line) > 120])
    batch = Batch(rows, np.ones_like(rows, dtype=bool))
    found = measuring.measure(Predictor(tiny), batch, UniformRate(1.0, 1.0), words)
    blank = torch.from_numpy(np.where(words.eligible(rows), words.mask, rows))
    log_p = tiny(input_ids=blank).logits.log_softmax(-1).detach()
    each = log_p.gather(-1, torch.from_numpy(rows)[..., None])[..., 0].numpy()[words.eligible(rows)]
    assert found.loss == pytest.approx(-each.mean(), rel=1e-5) and found.positions == each.size
