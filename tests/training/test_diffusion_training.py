"""Training with the bounds of masked diffusion, from text to a saved model."""

from __future__ import annotations

import json

import pytest

from maskropolis.errors import InputError
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.scoring import score
from maskropolis.training.masked.mlm import train_mlm


@pytest.mark.parametrize("objective", ["mdlm", "d3pm"])
def test_a_run_lowers_the_bound_and_reports_it(options, tmp_path, objective):
    folder = tmp_path / "run"
    chosen = options(objective=objective, time_steps=16, noise="cosine", steps=30, learning_rate=1e-2)
    result = train_mlm(chosen, folder)
    history = result.progress.history
    assert history[-1]["loss"] < history[0]["loss"]
    record = json.loads((folder / "training.json").read_text())
    assert record["metrics"]["loss of the diffusion bound, nats"] == pytest.approx(result.masked.loss)
    assert result.masked.loss == pytest.approx(min(point["loss"] for point in history), rel=1e-3)
    trained = HuggingFaceMaskedLM.from_pretrained(str(folder), device="cpu")
    assert score("the time machine", trained, metric="nelbo", samples=8)[0].bounds["nelbo"].value > 0


def test_nonsense_is_refused_before_anything_runs(options):
    with pytest.raises(InputError, match="0 time steps"):
        options(objective="d3pm", time_steps=0)
