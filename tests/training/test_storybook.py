"""The English model: what ships, how it was packed, and that its card says what was measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

ROOT = Path(__file__).parents[2]
EXPERIMENT = ROOT / "experiments/storybook"
RESULTS = EXPERIMENT / "results.json"


@pytest.fixture(autouse=True)
def _experiment(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENT))


@pytest.fixture(scope="module")
def folder() -> Path:
    from maskropolis.models.storybook import storybook_path

    return storybook_path()


def test_agreement_pairs_differ_in_one_word_and_come_from_the_seed():
    from agreement import pairs

    made = pairs(20)
    assert made == pairs(20) != pairs(20, seed=1) and len(set(made)) == 100
    for pair in made:
        good, bad = pair.good.split(), pair.bad.split()
        assert len(good) == len(bad) and sum(a != b for a, b in zip(good, bad, strict=True)) == 1


def test_packing_halves_the_weights_and_keeps_the_model(tmp_path, saved):
    from packing import pack

    size = pack(saved, tmp_path / "packed")
    assert size == sum(p.stat().st_size for p in (tmp_path / "packed").iterdir())
    stored = load_file(tmp_path / "packed/model.safetensors")
    assert {t.dtype for t in stored.values()} == {torch.float16} and not any("decoder.weight" in k for k in stored)
    before, after = (AutoModelForMaskedLM.from_pretrained(p).eval() for p in (saved, tmp_path / "packed"))
    tokens = torch.arange(5, 25)[None]
    assert after.dtype == torch.float32
    torch.testing.assert_close(before(input_ids=tokens).logits, after(input_ids=tokens).logits, atol=2e-3, rtol=1e-2)


def test_the_bundled_folder_is_flat_small_and_complete(folder):
    files = list(folder.iterdir())
    assert all(path.is_file() for path in files) and sum(path.stat().st_size for path in files) <= 32_000_000
    assert {"README.md", "NOTICE", "config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in files}
    stored = load_file(folder / "model.safetensors")
    assert {t.dtype for t in stored.values()} == {torch.float16} and all(t.isfinite().all() for t in stored.values())
    assert AutoModelForMaskedLM.from_pretrained(folder).dtype == torch.float32


@pytest.mark.parametrize(
    "text",
    [
        "“Don’t you see—it’s… the well-known (old) man,” she said. “I can’t.”",
        "He had $5; the dogs’ bones cost £3,000 at 10:30!",
        'The girl said "yes", and the boy said "no".',
    ],
)
def test_decoded_text_reads_like_print_and_encodes_to_the_same_tokens(folder, text):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text)["input_ids"]
    plain = text.lower().replace("“", '"').replace("”", '"').replace("’", "'")
    assert tokenizer.decode(ids, skip_special_tokens=True) == plain
    assert tokenizer(plain)["input_ids"] == ids and tokenizer.unk_token_id not in ids


def test_the_model_knows_english(folder, paragraphs):
    """The excerpt is training text, so this is no measurement: it would fail if weights and vocabulary did not fit."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder)
    asked = tokenizer("The old [MASK] opened the door.", return_tensors="pt")
    best = model(**asked).logits[0, 3].topk(20).indices
    assert "man" in tokenizer.convert_ids_to_tokens(best.tolist())


def test_the_card_says_what_was_measured(folder):
    from card import notice, storybook_card

    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert (folder / "README.md").read_text(encoding="utf-8") == storybook_card(results)
    assert (folder / "NOTICE").read_text(encoding="utf-8") == notice()
    import hashlib

    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:12]
    assert f"storybook@{weights}" in results["signature"]
    assert sys.modules["card"].__file__ == str(EXPERIMENT / "card.py")


def test_training_can_start_from_it_by_name(folder):
    from maskropolis.training.masked import starting

    assert starting.located("storybook") == str(folder) and starting.located("elsewhere") == "elsewhere"
    assert len(starting.load_tokenizer("storybook")) == starting.load_model("storybook").config.vocab_size


@pytest.mark.slow
def test_the_short_build_lowers_the_loss(tmp_path):
    from build import short

    short(tmp_path / "run")
