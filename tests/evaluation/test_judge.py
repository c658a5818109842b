"""The judge against the plain forward pass of one text at a time; padding, batches and starts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import causal
import pytest
import torch

from maskropolis.errors import InputError, ModelError, NumericalError
from maskropolis.evaluation.judging.judge import Judge, batches, perplexity, start_token

TEXTS = ["the cat", "a", "the cat sat on the mat, the end", "the the the", "Ünïcode and more of it", "cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return causal.save(tmp_path_factory.mktemp("judge"), bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="module")
def judge(folder: Path) -> Judge:
    return Judge.load(str(folder))


def plain(judge: Judge, text: str, start: list[int]) -> list[float]:
    """Log-probabilities of one text without padding or batch."""
    ids = torch.tensor([start + judge.tokenizer(text, add_special_tokens=False)["input_ids"]])
    with torch.inference_mode():
        log_p = judge.model(input_ids=ids).logits.double().log_softmax(-1)
    return log_p[0, :-1].gather(-1, ids[0, 1:, None])[:, 0].tolist()


@pytest.mark.parametrize("budget", [1, 7, 40, 10_000])
def test_values_are_those_of_each_text_alone(judge: Judge, budget: int) -> None:
    found = list(replace(judge, token_budget=budget).judge(TEXTS))
    assert [one.text for one in found] == TEXTS
    for one in found:
        expected = plain(judge, one.text, [0])
        assert one.log_probabilities == pytest.approx(expected, abs=1e-4)
        assert one.log_likelihood == pytest.approx(sum(expected), abs=1e-4)
        assert one.tokens == len(expected)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_perplexity_is_the_loss_of_transformers(tmp_path: Path, family: str) -> None:
    judge = Judge.load(str(causal.save(tmp_path, family)), start=None)
    ids = torch.tensor([judge.tokenizer(TEXTS[2])["input_ids"]])
    loss = judge.model(input_ids=ids, labels=ids).loss.item()
    (found,) = judge.judge([TEXTS[2]])
    assert found.perplexity == pytest.approx(math.exp(loss), rel=1e-5)
    assert found.tokens == ids.shape[1] - 1


def test_corpus_perplexity_weighs_tokens_and_words(judge: Judge) -> None:
    found = list(judge.judge(TEXTS))
    total = sum(one.log_likelihood for one in found)
    assert perplexity(found) == pytest.approx(math.exp(-total / sum(one.tokens for one in found)))
    assert perplexity(found, per_word=True) == pytest.approx(math.exp(-total / 20))
    assert found[2].words == 8
    with pytest.raises(InputError, match="no texts"):
        perplexity([])


def test_chunks_change_nothing(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    import maskropolis.evaluation.judging.judge as module

    whole = [one.log_probabilities for one in judge.judge(TEXTS * 3)]
    monkeypatch.setattr(module, "_CHUNK", 1)
    seen: list[int] = []
    small = [one.log_probabilities for one in replace(judge, token_budget=20).judge(TEXTS * 3, seen.append)]
    assert sum(seen) == len(small) == 18 and len(seen) > 6
    for one, other in zip(whole, small, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_batches_keep_the_budget_and_every_index() -> None:
    lengths = [3, 9, 1, 4, 4, 12]
    found = list(batches(lengths, 10))
    assert sorted(index for batch in found for index in batch) == list(range(6))
    assert found[0] == [5]  # one text that exceeds the budget alone
    assert all(len(batch) * max(lengths[i] for i in batch) <= 10 for batch in found[1:])


def test_start_rules() -> None:
    both = causal.tokenizer(bos_token="<s>", eos_token="</s>")
    assert start_token(both) == 0
    assert start_token(both, "<s>") == 1 and start_token(both, None) is None
    with pytest.raises(InputError, match="no token '<nothing>'"):
        start_token(both, "<nothing>")


def test_start_falls_back_to_bos_then_eos_then_none() -> None:
    class Plain:
        all_special_ids: tuple[int, ...] = ()
        bos_token_id: int | None = 7
        eos_token_id: int | None = 8

        def get_vocab(self) -> dict[str, int]:
            return {"a": 5}

        def __call__(self, text: str, verbose: bool) -> dict[str, Any]:
            return {"input_ids": [5]}

    one = Plain()
    assert start_token(one) == 7
    one.bos_token_id = None
    assert start_token(one) == 8
    one.eos_token_id = None
    assert start_token(one) is None


def test_a_start_that_the_tokenizer_adds_is_used_once(judge: Judge) -> None:
    from tokenizers import processors

    inner = causal.tokenizer(bos_token="<s>", eos_token="</s>")
    inner.backend_tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    adding = replace(judge, tokenizer=inner, start=start_token(inner))
    assert adding.start == 1
    (found,) = adding.judge(["the cat"])
    assert found.log_probabilities == pytest.approx(plain(judge, "the cat", [1]), abs=1e-4)


def test_bad_texts_are_named_after_the_good_ones(judge: Judge) -> None:
    for bad, message in (
        ("", "text 3, '', cannot be judged: it has 0 tokens"),
        ("a" * 70, "71 tokens, the judge takes 64"),
    ):
        found = []
        with pytest.raises(InputError, match=message):
            for one in judge.judge(["cat", "the", bad, "cat"]):
                found.append(one.text)
        assert found == ["cat", "the"]
        with pytest.raises(InputError, match=message):
            judge.require(["cat", "the", bad, "cat"])
    with pytest.raises(InputError, match="at least two tokens, as this judge has no start"):
        list(replace(judge, start=None).judge(["a"]))


def test_nan_is_an_error(judge: Judge) -> None:
    class Broken(torch.nn.Module):
        device, config = "cpu", judge.model.config

        def forward(self, input_ids: torch.Tensor, **rest: Any) -> Any:
            return type("Out", (), {"logits": torch.full((*input_ids.shape, 300), float("nan"))})

    with pytest.raises(NumericalError, match="NaN for 'the cat'"):
        list(replace(judge, model=Broken()).judge(["the cat"]))


def test_gguf_equals_the_folder(judge: Judge, tmp_path: Path) -> None:
    causal.write_gguf(tmp_path / "tiny.gguf")
    other = Judge.load(str(tmp_path / "tiny.gguf"))
    assert other.start == 0 and other.limit == 64
    assert other.signature.startswith("judge:tiny.gguf@") and "start:<|endoftext|>|dtype:float32" in other.signature
    for one, expected in zip(other.judge(TEXTS), judge.judge(TEXTS), strict=True):
        assert one.log_probabilities == pytest.approx(expected.log_probabilities, abs=1e-4)


def test_signature_names_the_weights(judge: Judge, folder: Path) -> None:
    assert judge.signature == f"judge:{folder.name}@{judge.fingerprint[:12]}|start:<|endoftext|>|dtype:float32"


def test_what_is_no_judge_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="sees the tokens to the right"):
        Judge.load(str(tiny_folder))
    with pytest.raises(ModelError, match=r"the GGUF file '.*none\.gguf' does not exist"):
        Judge.load(str(tmp_path / "none.gguf"))
    (tmp_path / "bad.gguf").write_bytes(b"GGUX" + bytes(100))
    with pytest.raises(ModelError, match=r"cannot load '.*bad\.gguf' as a causal language model"):
        Judge.load(str(tmp_path / "bad.gguf"))
    with pytest.raises(ModelError, match="no model 'nobody/nothing'"):
        Judge.load("nobody/nothing")
    with pytest.raises(InputError, match="token budget of 0"):
        Judge.load(str(tiny_folder), token_budget=0)


def test_other_architectures_are_named(tmp_path: Path) -> None:
    import transformers

    transformers.T5Config(vocab_size=300).save_pretrained(tmp_path)
    causal.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="is not a causal language model"):
        Judge.load(str(tmp_path))
