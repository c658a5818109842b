"""The Gaussian objective: what it corrupts, what it learns on a closed form, and a run from text to samples."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import tiny as small
import torch
from transformers import AutoModelForMaskedLM

from maskropolis import cli
from maskropolis.errors import InputError, ModelError
from maskropolis.generation import generate
from maskropolis.models.denoising.denoiser import HuggingFaceDenoiser
from maskropolis.models.denoising.noise_conditioning import MODULE, NoiseConditioning, noisy_logits
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.reference.tabular_denoiser import TabularDenoiser
from maskropolis.scoring import score
from maskropolis.sequences import Sequences
from maskropolis.targets.diffusion.denoising import score as denoising_score
from maskropolis.training.masked.denoising import log_prior
from maskropolis.training.masked.mlm import train_mlm
from maskropolis.training.masked.prediction import Predictor, losses, objective_value
from maskropolis.training.objectives import GaussianDae, Vocabulary

WORDS = Vocabulary.of(small.tokenizer(), small.V)
LETTERS = 8 + np.arange(4)  # a, b, c, d


def corrupt(objective, rows=2000, width=6):
    tokens = np.full((rows, width), 10)
    tokens[:, 0], tokens[:, -1] = 2, 3
    return tokens, objective.corrupt(tokens, np.ones_like(tokens, dtype=bool), WORDS, np.random.default_rng(0))


def test_rows_are_noisy_masked_or_partly_visible():
    tokens, seen = corrupt(GaussianDae(low=0.2, high=2.0))
    masked = np.isinf(seen.sigmas).any(1)
    assert (seen.tokens == np.where(np.isinf(seen.sigmas), small.MASK, tokens)).all()
    assert ((seen.sigmas > 0) == seen.chosen).all() and not seen.chosen[:, [0, -1]].any()
    noisy = seen.sigmas[~masked & seen.chosen.any(1)]
    levels = np.log(noisy.max(1))
    assert levels.min() >= np.log(0.2) - 1e-6 and levels.max() <= np.log(2.0) + 1e-6
    spread = (np.log(2.0) - np.log(0.2)) / np.sqrt(12)
    assert abs(levels.mean() - np.log(0.4) / 2) < 4 * spread / np.sqrt(len(levels))
    deviation = np.sqrt(0.25 * 0.75 / 2000)
    empty = 1 / 5  # of the rows with a uniform rate: E (1 − r)^4
    assert abs(masked.mean() - 0.25 * (1 - empty)) < 4 * deviation
    whole = (seen.chosen[:, 1:-1].all(1) & ~masked).mean()
    assert abs(whole - 0.75 * (0.75 + 0.25 / 5)) < 4 * np.sqrt(0.25 / 2000)


def test_for_validation_every_token_is_noisy():
    _, seen = corrupt(GaussianDae(masks=0.0, visible=0.0))
    assert seen.chosen[:, 1:-1].all() and np.isfinite(seen.sigmas).all()


def test_noise_belongs_to_a_row_not_to_its_share_of_the_batch():
    network = conditioned(small.network("bert"))
    predictor, (tokens, seen) = Predictor(network), corrupt(GaussianDae(), rows=4)
    whole = losses(predictor, tokens, seen, torch.device("cpu"))
    parts = [losses(predictor, tokens[i::2], seen.rows(slice(i, None, 2)), torch.device("cpu")) for i in range(2)]
    assert float(whole.detach().sum()) == pytest.approx(sum(float(part.detach().sum()) for part in parts), rel=1e-5)


def conditioned(network, counts=None):
    counts = np.zeros(small.V) if counts is None else counts
    prior = log_prior(counts, WORDS.ordinary, WORDS.mask)
    torch.manual_seed(0)
    network.add_module(MODULE, NoiseConditioning.beginning(network, prior, 0.1, 4.0))
    return network


@pytest.mark.parametrize("name", sorted(set(small.configurations()) - {"esm"}))  # esm scales embeddings by its masks
def test_every_architecture_begins_as_itself(name):
    """With little noise, what the context says is what the model says of the clean text."""
    network = conditioned(small.network(name))
    ids = small.tokenizer()("the cat sat on the mat.", return_tensors="pt")["input_ids"]
    where = (ids != 2) & (ids != 3)
    found, sigma = network.noise_conditioning, 0.02
    noise = torch.randn(found.embeddings[ids].shape, generator=torch.Generator().manual_seed(1))
    noisy = found.embeddings[ids] + sigma * noise
    sigmas = torch.where(where, sigma, 0.0)
    with torch.inference_mode():
        plain = network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[where]
        parts = Predictor(network).parts
        context = noisy_logits(network, parts, found, ids, noisy, sigmas, where, torch.ones_like(ids))
        context -= found.own(noisy[where], sigmas[where])
    assert torch.allclose(context, plain, atol=2e-3)


def pairs():
    """A strongly dependent distribution of two letters."""
    table = torch.full((4, 4), 0.02, dtype=torch.float64)
    table[[0, 1, 2, 3], [1, 0, 3, 3]] = torch.tensor([0.3, 0.2, 0.16, 0.1], dtype=torch.float64)
    return table / table.sum()


def independent():
    """Two independent letters of very different frequency."""
    priors = torch.tensor([0.8, 0.15, 0.04, 0.01], dtype=torch.float64)
    return priors[:, None] * priors


def learnt(table, steps, rows=32):
    """A small BERT trained on [CLS] letter letter [SEP], as a `HuggingFaceMaskedLM`; it is not told the priors."""
    random, weights = np.random.default_rng(0), table.numpy().reshape(-1)
    counts = np.zeros(small.V)
    counts[LETTERS] = 1000
    network = conditioned(small.network("bert"), counts).train()
    predictor, objective = Predictor(network), GaussianDae()
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for step in range(steps):
        drawn = np.stack(np.divmod(random.choice(16, rows, p=weights), 4), 1)
        tokens = np.pad(LETTERS[drawn], [(0, 0), (1, 1)])
        tokens[:, 0], tokens[:, -1] = 2, 3
        seen = objective.corrupt(tokens, np.ones_like(tokens, dtype=bool), WORDS, random)
        optimiser.param_groups[0]["lr"] = 3e-3 * (1 - step / steps)
        objective_value(losses(predictor, tokens, seen, torch.device("cpu")), seen).backward()
        optimiser.step()
        optimiser.zero_grad()
    conditioning = network._modules.pop(MODULE)
    model = HuggingFaceMaskedLM(network, small.tokenizer(), name="pairs")
    model.noise_conditioning = conditioning.eval()
    return model


@pytest.mark.parametrize(
    ("table", "steps", "share"),
    [
        pytest.param(independent(), 120, 0.2, id="known priors"),
        pytest.param(pairs(), 1500, 0.4, id="dependent", marks=pytest.mark.slow),  # the marginals alone: 0.8
    ],
)
def test_the_learnt_score_approaches_that_of_the_mixture(table, steps, share):
    """Root mean squared error against the exact score; far below that of a model that knows neither priors nor
    context."""
    denoiser = HuggingFaceDenoiser(learnt(table, steps))
    letters = denoiser.embeddings[[*LETTERS.tolist(), small.MASK]]
    rows, flat = 400, torch.full((4, 4), 1 / 16, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    drawn = torch.multinomial(table.reshape(-1), rows, replacement=True, generator=generator)
    pair = torch.stack([drawn // 4, drawn % 4], 1)
    sigmas = torch.exp(torch.empty(rows).uniform_(-1.6, 1.0, generator=generator))
    noise = torch.randn(rows, 2, letters.shape[1], generator=generator)
    noisy = letters[pair] + sigmas[:, None, None] * noise
    exact, ignorant = (
        denoising_score(TabularDenoiser(one, letters, 0.1, 4.0), plain(pair), noisy.double(), sigmas, plain(pair).free)
        for one in (table, flat)
    )
    framed = torch.nn.functional.pad(torch.from_numpy(LETTERS)[pair], (1, 1))
    framed[:, 0], framed[:, -1] = 2, 3
    sequences = plain(framed)
    where = torch.tensor([[False, True, True, False]]).expand(rows, -1)
    found = denoising_score(denoiser, sequences, torch.nn.functional.pad(noisy, (0, 0, 1, 1)), sigmas, where)[:, 1:3]
    scaled = sigmas.double()[:, None, None].square()  # errors of the denoiser's mean, comparable over σ
    error, most = ((scaled * (one - exact)).square().mean().sqrt() for one in (found, ignorant))
    assert error < share * most


def plain(tokens):
    every = torch.ones_like(tokens, dtype=torch.bool)
    return Sequences(tokens, every, every)


def test_a_run_from_text_to_samples_and_scores(options, tmp_path):
    folder = tmp_path / "run"
    result = train_mlm(options(objective="gaussian-dae", steps=30, learning_rate=1e-2), folder)
    history = result.progress.history
    assert history[-1]["loss"] < history[0]["loss"]
    record = json.loads((folder / "training.json").read_text())
    assert record["metrics"]["loss of tokens under Gaussian noise, nats"] == pytest.approx(result.masked.loss)
    _, report = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    model = HuggingFaceMaskedLM.from_pretrained(str(folder), device="cpu")
    assert model.noise_conditioning is not None and (model.noise_conditioning.low, model.noise_conditioning.high) == (
        0.1,
        4.0,
    )
    several = generate(model, method="langevin", length=[3, 5], chains=2, steps=8, levels=4, seed=1)
    one = generate(model, method="langevin", length=[3], chains=1, steps=8, levels=4, seed=1)
    assert several.records[0]["token_ids"] == one.records[0]["token_ids"] and several.rows == 2 * 9
    assert "langevin(levels=4,steps=8" in several.signature
    found = score("the time machine", model, metric=["gaussian", "denoising"], samples=8, sigma=0.3)[0]
    assert found.bounds["gaussian"].value > 0 and found.bounds["denoising"].error > 0
    again = train_mlm(options(init=str(folder), objective="gaussian-dae", steps=1), tmp_path / "more")
    assert again is not None
    with pytest.raises(InputError, match=r"go on with --sigma-range 0\.1 4"):
        train_mlm(options(init=str(folder), objective="gaussian-dae", sigma_low=0.2), tmp_path / "other")


def test_a_stopped_run_ends_with_the_same_weights(options, tmp_path, monkeypatch):
    from maskropolis.training.loop import Interrupted, Trainer

    chosen = options(objective="gaussian-dae")
    train_mlm(chosen, tmp_path / "whole")
    step = Trainer.step

    def stopping(self, number, spent):
        if number == 6:
            self._stop = True
        return step(self, number, spent)

    monkeypatch.setattr(Trainer, "step", stopping)
    with pytest.raises(Interrupted):
        train_mlm(chosen, tmp_path / "halves")
    monkeypatch.setattr(Trainer, "step", step)
    train_mlm(chosen, tmp_path / "halves", resume=True)
    for name in ("model.safetensors", "noise_conditioning.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "halves" / name).read_bytes()


def test_a_damaged_conditioning_is_one_line(saved):
    (saved / "noise_conditioning.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="is damaged"):
        HuggingFaceMaskedLM.from_pretrained(str(saved), device="cpu")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("sample", "--method", "langevin"), "has no noise conditioning"),
        (("score", "--metric", "gaussian", "--text", "the time"), "has no noise conditioning"),
        (("sample", "--method", "langevin", "--steps", "7"), "7 steps of Langevin dynamics cannot be shared"),
        (("sample", "--method", "langevin", "--noise", "cosine"), "--noise belongs to --method diffusion"),
        (("sample", "--method", "langevin", "-T", "0.5"), "has no temperature"),
        (("sample", "--method", "diffusion", "--levels", "4"), "--levels belongs to --method langevin"),
    ],
)
def test_bad_commands_are_one_line(arguments, says, saved, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["maskropolis", *arguments, "-m", str(saved)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    message = capfd.readouterr().err.splitlines()[-1]
    assert stop.value.code == 2 and message.startswith("error:") and says in message


def test_nonsense_is_refused_before_anything_runs(options):
    with pytest.raises(InputError, match="range of σ is 2 to 1"):
        options(objective="gaussian-dae", sigma_low=2.0, sigma_high=1.0)
