"""Everything that can be wrong with a model is said in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny
import torch

import maskropolis
from maskropolis.errors import InputError, ModelError


def changed(folder: Path, tmp_path: Path, **settings: object) -> Path:
    """A copy of `folder` whose config.json has other settings."""
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **settings}))
    return copy


def refused(name: object, **options: object) -> str:
    with pytest.raises((ModelError, InputError)) as caught:
        maskropolis.load(str(name), **options)
    message = str(caught.value)
    assert "\n" not in message and "Traceback" not in message
    return message


def test_a_saved_folder_loads(tiny_folder: Path) -> None:
    model = maskropolis.load(str(tiny_folder), token_budget=77)
    assert model.budget.tokens == 77
    assert model.vocabulary_size == tiny.V and model.mask_token == tiny.MASK
    assert model.dtype == "float32" and model.device == torch.device("cpu")
    assert model.fingerprint() == maskropolis.load(str(tiny_folder)).fingerprint()
    assert [tiny.PIECES[i] for i in (~model.allowed).nonzero()[:, 0]] == tiny.PIECES[:6]


def test_unknown_model() -> None:
    assert "no model 'nobody/nothing'" in refused("nobody/nothing")


def test_folder_without_configuration(tmp_path: Path) -> None:
    assert "without config.json" in refused(tmp_path)


def test_pickled_weights_need_leave(tiny_folder: Path, tmp_path: Path) -> None:
    folder = changed(tiny_folder, tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save(tiny.network("bert").state_dict(), folder / "pytorch_model.bin")
    assert "--allow-pickle" in refused(folder)
    loaded = maskropolis.load(str(folder), allow_pickle=True)
    assert loaded.fingerprint() == maskropolis.load(str(tiny_folder)).fingerprint()


class Harmful:
    """Unpickling this would run code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("harmful-was-here"),))  # type: ignore[return-value]


def test_allowed_pickles_still_run_no_code(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = changed(tiny_folder, tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Harmful()}, folder / "pytorch_model.bin")
    monkeypatch.chdir(tmp_path)
    message = refused(folder, allow_pickle=True)
    assert "holds more than tensors" in message and "weights_only" not in message
    assert not (tmp_path / "harmful-was-here").exists()


def test_tokenizer_without_mask_token(tiny_folder: Path, tmp_path: Path) -> None:
    folder = changed(tiny_folder, tmp_path)
    tokenizer = tiny.tokenizer()
    tokenizer.mask_token = None
    tokenizer.save_pretrained(folder)
    assert "no mask token" in refused(folder)


def test_causal_model_is_not_masked(tiny_folder: Path, tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=tiny.V, n_embd=16, n_layer=1, n_head=2, n_positions=16)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    assert "is not a masked language model (GPT2Config)" in refused(tmp_path)


def test_missing_output_layer(tmp_path: Path) -> None:
    from transformers import BertModel

    BertModel(tiny.configurations()["bert"]).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    message = refused(tmp_path)
    assert "not a complete masked language model" in message and "cls.predictions" in message


def test_remote_code_needs_leave(tiny_folder: Path, tmp_path: Path) -> None:
    remote = {"AutoConfig": "mine.MyConfig", "AutoModelForMaskedLM": "mine.MyModel"}
    folder = changed(tiny_folder, tmp_path, model_type="mine", auto_map=remote)
    (folder / "mine.py").write_text("raise SystemExit('remote code ran')\n")
    assert "--trust-remote-code" in refused(folder)


def test_device_that_is_not_there(tiny_folder: Path) -> None:
    assert "available: cpu" in refused(tiny_folder, device="cuda:99")
    assert "device 'gpu' is not there" in refused(tiny_folder, device="gpu")
    assert "device 'meta'" in refused(tiny_folder, device="meta")


def test_unknown_dtype(tiny_folder: Path) -> None:
    assert "did you mean 'float32'?" in refused(tiny_folder, dtype="floot32")


def test_missing_tokenizer(tiny_folder: Path, tmp_path: Path) -> None:
    folder = changed(tiny_folder, tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).unlink()
    assert "--tokenizer" in refused(folder)
    assert maskropolis.load(str(folder), tokenizer=str(tiny_folder)).mask_token == tiny.MASK
    assert "no tokenizer" in refused(folder, tokenizer=str(tmp_path / "nowhere"))
    assert "vocab.txt" in refused(folder, tokenizer="smiles")


def test_tokenizer_of_another_model(tiny_folder: Path, tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(["zeppelin", "zither"])
    tokenizer.save_pretrained(tmp_path)
    assert "does not belong" in refused(tiny_folder, tokenizer=str(tmp_path))


def test_damaged_weights(tiny_folder: Path, tmp_path: Path) -> None:
    folder = changed(tiny_folder, tmp_path)
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    assert "cannot load" in refused(folder)


def test_damaged_configuration(tiny_folder: Path, tmp_path: Path) -> None:
    folder = changed(tiny_folder, tmp_path)
    (folder / "config.json").write_text("{not json")
    refused(folder)


def test_shapes_that_do_not_match(tiny_folder: Path, tmp_path: Path) -> None:
    refused(changed(tiny_folder, tmp_path, intermediate_size=40))


def test_token_budget(tiny_folder: Path) -> None:
    assert "token budget" in refused(tiny_folder, token_budget=0)


def test_half_precision(tiny_folder: Path) -> None:
    full, half = maskropolis.load(str(tiny_folder)), maskropolis.load(str(tiny_folder), dtype="bfloat16")
    assert half.dtype == "bfloat16" and half.output_layer == "asked positions"
    ours = maskropolis.score("the cat sat", half)[0].pll
    assert ours == pytest.approx(maskropolis.score("the cat sat", full)[0].pll, rel=0.02)


def test_no_model_at_all(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("the cat")
    for name in (str(file), ""):
        assert f"'{name}' is no model; expected the folder" in refused(name)


def test_a_tokenizer_folder_without_a_tokenizer(tiny_folder: Path, tmp_path: Path) -> None:
    message = refused(tiny_folder, tokenizer=str(tmp_path))
    assert message.endswith(f"the folder '{tmp_path}' has no complete tokenizer; expected tokenizer.json or the like")
