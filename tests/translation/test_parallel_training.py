"""Training translation models: batches, masks, losses, exact resume, averages; a language pair learnt in seconds."""

from __future__ import annotations

import json
from dataclasses import replace

import cipher
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from maskropolis.errors import InputError, RunError
from maskropolis.models.conditional.loading import load_conditional
from maskropolis.searching.quality import bleu
from maskropolis.training.data.batches import stream
from maskropolis.training.objectives.cmlm import Copies, Tokens, mask
from maskropolis.training.objectives.seq2seq import shift
from maskropolis.training.objectives.smoothing import projected_cross_entropy
from maskropolis.training.parallel import run as parallel_run
from maskropolis.training.parallel.batches import Encoded, PairBatch, ParallelBatches, encode_pairs
from maskropolis.training.parallel.cmlm import CmlmTask
from maskropolis.training.parallel.options import ParallelOptions
from maskropolis.training.parallel.pairs import distilled, hold_out, read_pairs
from maskropolis.training.parallel.run import Interrupted, train_parallel
from maskropolis.training.parallel.trainer import ParallelTrainer
from maskropolis.training.parallel.vocabulary import learn_joint
from maskropolis.translation import Line, load_translator, make_decoding, translate, translate_lines

SMALL = {"vocabulary_size": 300, "width": 64, "heads": 4, "feed_forward": 128, "encoder_layers": 1, "decoder_layers": 1,
         "longest": 32, "dropout": 0.0, "label_smoothing": 0.0, "tokens": 500, "learning_rate": 4e-3, "warmup": 50,
         "precision": "fp32", "validation_iterations": 4, "average": 2}  # fmt: skip


def options(folder, kind="cmlm", count=400, **changes):
    source, target = cipher.write(folder, count, seed=0)
    often = {"steps": 12, "evaluate_every": 4, "checkpoint_every": 5, "validation_sentences": 10}
    return ParallelOptions(kind, str(source), str(target), **{**SMALL, **often, **changes})


def test_the_fused_loss_and_its_gradients_are_the_plain_ones():
    torch.manual_seed(0)
    hidden, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((11, 6), (9, 6), (9,)))
    labels = torch.randint(9, (11,))
    for smoothing in (0.0, 0.1):
        plain = F.cross_entropy(F.linear(hidden, weight, bias), labels, label_smoothing=smoothing, reduction="sum")
        expected = torch.autograd.grad(3 * plain, (hidden, weight, bias))
        fused = projected_cross_entropy(hidden, weight, bias, labels, smoothing, rows=4)
        found = torch.autograd.grad(3 * fused, (hidden, weight, bias))
        assert float(fused.detach()) == pytest.approx(float(plain.detach()), rel=1e-5)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True))


def corpus(count=300, seed=0):
    draw = np.random.default_rng(seed)
    source, target = draw.integers(2, 12, count), draw.integers(1, 10, count)
    flat = [np.arange(lengths.sum(), dtype=np.int32) + 5 for lengths in (source, target)]
    starts = [np.concatenate([[0], np.cumsum(lengths)]) for lengths in (source, target)]
    return Encoded(flat[0], starts[0], flat[1], starts[1])


def test_every_pass_gives_every_pair_once_in_batches_without_padding_waste():
    batches = ParallelBatches(corpus(), tokens=60, padding=0, seed=3)
    for number in range(3):
        seen, real, padded = [], 0, 0
        for step in range(number * batches.batches_per_pass, (number + 1) * batches.batches_per_pass):
            batch = batches.at(step)
            seen += batch.target[:, 0].tolist()
            real, padded = real + batch.tokens, padded + batch.target.size
            assert batch.target.size <= 60
        assert len(set(seen)) == len(seen) == 300
        assert real / padded > 0.9
    again = ParallelBatches(corpus(), tokens=60, padding=0, seed=3).at(40)
    assert np.array_equal(again.source, batches.at(40).source)
    with pytest.raises(InputError, match="too small for a target of 9"):
        ParallelBatches(corpus(), tokens=5, padding=0)


def test_the_number_of_masks_and_their_places_are_uniform():
    lengths = np.array([4] * 4000)
    batch = PairBatch(np.ones((4000, 1), int), np.ones(4000, int), np.full((4000, 4), 7), lengths)
    made = mask(batch, Tokens(mask=3, end=1, padding=0, end_kind="fixed"), stream(0, 0))
    assert made.target.shape == (4000, 5) and (made.target[:, 4] == 1).all() and not made.chosen[:, 4].any()
    counts = np.bincount(made.chosen.sum(1), minlength=5) / 4000
    assert counts[0] == 0 and np.allclose(counts[1:], 0.25, atol=0.03)
    assert np.allclose(made.chosen[:, :4].mean(0), 0.625, atol=0.03)
    assert (made.target[made.chosen] == 3).all() and made.counted[0] == 4
    whole = mask(batch, Tokens(3, 1, 0, "predicted"), stream(0, 0))
    assert whole.chosen[:, 4].any() and whole.counted[0] == 5
    assert mask(batch, Tokens(3, 1, 0, "none"), stream(0, 0)).target.shape == (4000, 4)


def test_teacher_forcing_shifts_the_target():
    batch = PairBatch(np.ones((2, 1), int), np.ones(2, int), np.array([[5, 6, 7], [8, 0, 0]]), np.array([3, 1]))
    made = shift(batch, begin_token=4, end_token=1, padding=0)
    assert made.given.tolist() == [[4, 5, 6, 7], [4, 8, 0, 0]]
    assert made.labels.tolist() == [[5, 6, 7, 1], [8, 1, 0, 0]]
    assert made.chosen.tolist() == [[True] * 4, [True, True, False, False]]


def test_one_vocabulary_for_both_languages_brings_text_back():
    texts = ["ein hund &apos;s läuft , schnell .", "a dog runs ."] * 3
    tokenizer = learn_joint(texts, 200)
    for text in texts:
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    assert tokenizer("a dog")["input_ids"][-1] == tokenizer.eos_token_id
    assert tokenizer.unk_token_id in tokenizer("a 😀")["input_ids"]


def test_pairs_are_read_with_every_fault_named(tmp_path):
    (tmp_path / "a").write_text("x y\n\nz\nu\n")
    (tmp_path / "b").write_text("1 2\n3\n\n4\n")
    (tmp_path / "c").write_text("1\n")
    pairs = read_pairs(str(tmp_path / "a"), str(tmp_path / "b"))
    assert pairs.sources == ["x y", "u"] and pairs.lines == [0, 3] and pairs.skipped == 2
    with pytest.raises(InputError, match=r"has 4 lines and .* has 1"):
        read_pairs(str(tmp_path / "a"), str(tmp_path / "c"))
    with pytest.raises(InputError, match="too few to hold some out"):
        hold_out(pairs, 5, 0)
    (tmp_path / "d").write_text("q\nr\ns\n\n")
    made = distilled(pairs, str(tmp_path / "d"), "a", 4)
    assert made.targets == ["q"] and made.sources == ["x y"]


def test_pairs_that_are_too_long_are_left_out(tmp_path):
    source, target = cipher.write(tmp_path, 50, seed=0)
    pairs = read_pairs(str(source), str(target))
    tokenizer = learn_joint(pairs.sources + pairs.targets, 300)
    encoded, left_out = encode_pairs(pairs, tokenizer, (32, 5))
    assert left_out and len(encoded) + left_out == 50 and encoded.target_lengths.max() <= 5
    with pytest.raises(InputError, match="no pair fits"):
        encode_pairs(pairs, tokenizer, (2, 1))


def test_copies_share_the_encoding_and_add_up(tmp_path):
    """The loss of a batch with three maskings of each target is the mean of three losses, length counted once."""
    task = CmlmTask(options(tmp_path, copies=3))
    tokenizer = learn_joint(["aa bb cc dd ee"], 60)
    network = task.network(tokenizer)
    batch = PairBatch(
        np.array([[7, 8, 1], [9, 1, 0]]), np.array([3, 2]), np.array([[7, 8, 9], [8, 0, 0]]), np.array([3, 1])
    )
    made = task.prepare(network, batch, stream(0, 0))
    assert made.chosen.shape == (6, 4)
    together, count = task.loss(network, batch, made, network.forward)
    apart = [task.loss(network, batch, Copies([part]), network.forward) for part in made.parts]
    memory = network.encode(torch.from_numpy(batch.source), torch.tensor([[True] * 3, [True, True, False]]))
    length = F.cross_entropy(memory.lengths, torch.tensor([3, 1]), reduction="sum")
    expected = sum(loss for loss, _ in apart) - 2 * length
    assert count == sum(n for _, n in apart)
    assert float(together.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("kind", ["cmlm", "seq2seq"])
def test_a_stopped_run_resumes_to_the_same_weights(tmp_path, monkeypatch, kind):
    made = options(tmp_path, kind)
    train_parallel(made, tmp_path / "whole")
    step = ParallelTrainer.step

    def until_seven(self, number, spent):
        if number == 7:
            self._stop = True
        return step(self, number, spent)

    monkeypatch.setattr(ParallelTrainer, "step", until_seven)
    with pytest.raises(Interrupted):
        train_parallel(made, tmp_path / "parts")
    assert json.loads((tmp_path / "parts/training.json").read_text())["status"] == "interrupted"
    monkeypatch.setattr(ParallelTrainer, "step", step)
    with pytest.raises(RunError, match="other options: seed"):
        train_parallel(options(tmp_path, kind, seed=5), tmp_path / "parts", resume=True)
    train_parallel(made, tmp_path / "parts", resume=True)
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert whole.keys() == parts.keys() and all(torch.equal(whole[name], parts[name]) for name in whole)
    with pytest.raises(RunError, match="finished"):
        train_parallel(made, tmp_path / "parts", resume=True)


def test_a_saved_model_comes_with_card_history_and_vocabulary(tmp_path):
    result = train_parallel(options(tmp_path), tmp_path / "out", command=("maskropolis", "train", "cmlm"))
    folder = tmp_path / "out"
    card = (folder / "README.md").read_text()
    assert "pipeline_tag" in card and "BLEU" in card and result.signature in card
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [p["step"] for p in points if "validation_bleu" in p] == [4, 8, 12]
    assert not (folder / "checkpoint.safetensors").exists() and not (folder / "averaged").exists()
    model = load_conditional(str(folder))
    assert model.config.end == "fixed" and bool(model.network.embed.weight.isfinite().all())


def test_the_average_is_the_mean_of_the_last_states(tmp_path, monkeypatch):
    seen = []
    average = ParallelTrainer.average

    def watch(self):
        from safetensors import safe_open

        paths = sorted((self.folder / "averaged").glob("*.safetensors"))
        states = []
        for path in paths:
            with safe_open(path, framework="pt") as file:
                states.append(file.get_tensor("model/embed.weight"))
        count = average(self)
        seen.append((len(paths), states, self.model.embed.weight.detach().clone()))
        return count

    monkeypatch.setattr(ParallelTrainer, "average", watch)
    train_parallel(options(tmp_path), tmp_path / "out")
    count, states, mean = seen[0]
    assert count == 2 and torch.allclose(mean, (states[0] + states[1]) / 2, atol=1e-7)


def test_distilled_targets_are_trained_on(tmp_path, monkeypatch):
    made = options(tmp_path)
    (tmp_path / "distilled").write_text("\n".join(["bababa"] * 400) + "\n")
    seen = []
    encode = parallel_run.encode_pairs
    monkeypatch.setattr(parallel_run, "encode_pairs", lambda pairs, *a: seen.append(pairs) or encode(pairs, *a))
    train_parallel(options(tmp_path, distill=str(tmp_path / "distilled")), tmp_path / "out")
    assert set(seen[0].targets) == {"bababa"} and len(seen[0]) == 360
    assert made.distill is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"width": 65}, "does not divide into 4 heads"),
        ({"label_smoothing": 1.0}, "label smoothing is 1"),
        ({"tokens": 0}, "tokens is 0"),
        ({"valid_source": "x"}, "go together"),
        ({"vocabulary_size": 5}, "vocabulary of 5 is too small"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_options_out_of_range_are_one_line(tmp_path, changes, says):
    with pytest.raises(InputError, match=says):
        train_parallel(options(tmp_path, **changes), tmp_path / "out")


def test_a_run_that_was_asked_for_wrongly_can_be_asked_for_again(tmp_path):
    made = options(tmp_path)
    (tmp_path / "short").write_text("one line\n")
    with pytest.raises(InputError, match="lines"):
        train_parallel(replace(made, target=str(tmp_path / "short")), tmp_path / "out")
    with pytest.raises(InputError, match="too small"):
        train_parallel(replace(made, vocabulary_size=5), tmp_path / "out")
    assert train_parallel(made, tmp_path / "out") is not None


def test_an_unforeseen_failure_is_in_the_record_and_the_run_goes_on(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(parallel_run, "make_task", lambda options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_parallel(options(tmp_path), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "training.json").read_text())["status"] == "failed"
    assert train_parallel(options(tmp_path), tmp_path / "out", resume=True) is not None


def test_a_cipher_is_learnt_in_seconds(tmp_path):
    """The whole way: text, vocabulary, training, saved model, translation of new sentences by every decoder."""
    made = options(tmp_path, count=4000, steps=800, evaluate_every=400, checkpoint_every=800)
    train_parallel(made, tmp_path / "model")
    sources, references = cipher.sentences(100, seed=1)
    model = load_translator(str(tmp_path / "model"))

    for settings in ({}, {"decoder": "mh", "start": "greedy", "sweeps": 2, "final_temperature": 0.1}):
        found = [one.text for one in translate(sources, model, length_beam=1, **settings)]
        assert bleu(found, references) > 90


@pytest.mark.slow
def test_the_baseline_learns_the_cipher_too(tmp_path):
    made = options(tmp_path, "seq2seq", count=4000, steps=900, evaluate_every=450, checkpoint_every=900)
    train_parallel(made, tmp_path / "model")
    sources, references = cipher.sentences(100, seed=1)

    for beam in (1, 4):
        model = load_translator(str(tmp_path / "model"), beam=beam)
        lines = [Line(n, text, f"line {n}") for n, text in enumerate(sources, start=1)]
        found = [one.text for one in translate_lines(lines, model, make_decoding())]
        assert bleu(found, references) > 90
