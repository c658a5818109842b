"""Nothing that arrives in a file runs code: neither what a model folder brings, nor what a run folder names."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
from hostile import MARKER, command, refused

import maskropolis

CODE = f"""
import pathlib
pathlib.Path({MARKER!r}).touch()
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast
class Config(BertConfig):
    model_type = "sneaky"
class Model(BertForMaskedLM):
    config_class = Config
class Words(BertTokenizerFast):
    pass
"""


@pytest.fixture(params=["network", "attention"])
def sneaky(request: pytest.FixtureRequest, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder with code of its own, wanted by its configuration or its attention."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "sneaky"
    folder.mkdir()
    for path in tiny_folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "sneaky.py").write_text(CODE)
    if request.param == "network":
        config = json.loads((folder / "config.json").read_text())
        kinds = ("AutoModel", "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSequenceClassification")
        config |= {"model_type": "sneaky", "auto_map": {kind: "sneaky.Model" for kind in kinds}}
        config["auto_map"]["AutoConfig"] = "sneaky.Config"
        (folder / "config.json").write_text(json.dumps(config))
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"attn_implementation": "somebody/attention"}))
    return folder


def loading_commands(folder: str) -> dict[str, list[str]]:
    """Every command that loads a model, and every way to name one."""
    Path("lines.txt").write_text("the cat sat\n" * 4)
    Path("held.txt").write_text("a mat\n" * 4)
    Path("lists.jsonl").write_text('{"source": "the cat", "hypotheses": ["a mat", "the mat"]}\n')
    return {
        "score": ["score", "--text", "the cat", "-m", folder],
        "sample": ["sample", "-m", folder],
        "sample causal": ["sample", "-m", f"causal:{folder}"],
        "sample expert": ["sample", "--length", "3", "--expert", f"classifier:{folder}:x:1"],
        "sample causal expert": ["sample", "--length", "3", "--expert", f"causal:{folder}:1"],
        "sample embedding": ["sample", "--length", "3", "--expert", f"embedding:{folder}:the cat:1"],
        "fill": ["fill", "the [MASK] sat", "-m", folder],
        "mutate": ["mutate", "--text", "the cat", "-m", folder],
        "verify": ["verify", "-m", folder, "--tokens", "the,cat"],
        "evaluate judge": ["evaluate", "lines.txt", "--judge", folder],
        "train": ["train", "mlm", "lines.txt", "-o", "trained", "--init", folder, "--validation", "held.txt"],
        "translate": ["translate", "lines.txt", "-m", folder, "--separator", ""],
        "rescore": ["rescore", "lists.jsonl", "-m", folder, "--separator", ""],
    }


LOADING = (
    "score", "sample", "sample causal", "sample expert", "sample causal expert", "sample embedding", "fill", "mutate",
    "verify", "evaluate judge", "train", "translate", "rescore",
)  # fmt: skip


@pytest.mark.parametrize("name", LOADING)
def test_no_command_runs_code_of_a_model(name: str, sneaky: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    outcome = command(monkeypatch, capsys, *loading_commands(str(sneaky))[name])
    refused(outcome)
    assert "--trust-remote-code" in outcome[1] or name in ("translate", "rescore", "verify"), outcome[1]


def test_a_tokenizer_with_code(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words").mkdir()
    Path("words/sneaky.py").write_text(CODE)
    Path("words/vocab.txt").write_text("\n".join(tiny.PIECES))
    wanted = {"tokenizer_class": "Words", "auto_map": {"AutoTokenizer": ["sneaky.Words", "sneaky.Words"]}}
    Path("words/tokenizer_config.json").write_text(json.dumps(wanted))
    score = ["score", "--text", "the cat", "-m", str(tiny_folder), "--tokenizer", "words"]
    refused(command(monkeypatch, capsys, *score), "--trust-remote-code")
    monkeypatch.setenv("HF_MODULES_CACHE", str(Path("modules").resolve()))
    command(monkeypatch, capsys, *score, "--trust-remote-code")
    assert Path(MARKER).exists()


def test_with_trust_it_runs(sneaky: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The folder is what it claims: with the option, its code is imported (attention needs a package besides)."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(Path("modules").resolve()))
    outcome = command(monkeypatch, capsys, "score", "--text", "the cat", "-m", str(sneaky), "--trust-remote-code")
    if (sneaky / "tokenizer.json").exists() and "attention" in (sneaky / "config.json").read_text():
        assert outcome[0] in (0, 2) and "Traceback" not in outcome[1]
    else:
        assert Path(MARKER).exists(), outcome


def test_one_place_loads() -> None:
    source = Path(maskropolis.__file__).parent
    here = source / "models" / "huggingface" / "pretrained.py"
    pattern = re.compile(
        r"\.from_pretrained\(|torch\.load\((?!.*weights_only=True)|pickle\.load|trust_remote_code=None"
    )
    ours = re.compile(r"(HuggingFaceMaskedLM|CausalAsMasked)\.from_pretrained\(")
    found = [
        f"{path.relative_to(source)}:{number}"
        for path in source.rglob("*.py")
        if path != here and path.name != "card.py"  # a card shows readers how to load the model
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(ours.sub("", line))
    ]
    assert found == []


def test_a_run_calls_no_function_unasked(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quietly.py").write_text("def none(texts):\n    return [0.0] * len(texts)\n")
    start = ["sample", "-m", str(tiny_folder), "--length", "3", "--chains", "2", "--steps", "3", "--out", "mine"]
    assert command(monkeypatch, capsys, *start, "--expert", "python:quietly:none:1")[0] == 0
    sys.modules.pop("quietly")
    Path("quietly.py").write_text(f"import pathlib\npathlib.Path({MARKER!r}).touch()\n{Path('quietly.py').read_text()}")
    for name in ("diagnose", "report"):
        command(monkeypatch, capsys, name, "mine", *(["-o", "page.html"] if name == "report" else []))
        assert not Path(MARKER).exists() and "quietly" not in sys.modules
    outcome = command(monkeypatch, capsys, "resume", "mine", "--steps", "6")
    refused(outcome, "quietly:none", "--trust-run-code")
    with pytest.raises(maskropolis.errors.RunError, match="trust_run_code"):
        maskropolis.resume("mine", steps=6)
    assert "quietly" not in sys.modules and not Path(MARKER).exists()
    assert command(monkeypatch, capsys, "resume", "mine", "--steps", "6", "--trust-run-code")[0] == 0
    assert Path(MARKER).exists()
