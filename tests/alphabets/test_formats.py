"""FASTA, SMILES and tokens in and out, on a protein, an antibody, a chemistry and an English model."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from typer.testing import CliRunner

import maskropolis
from maskropolis import HuggingFaceMaskedLM, cli
from maskropolis.errors import InputError, ModelError
from maskropolis.models.text.alphabets import codec_for
from maskropolis.records import Fields, open_records, read_records

PROTEIN = "MKTAYIAKQRQISFVKSHFS"
FASTA = f">sp|P1|X first one\n{PROTEIN[:12].lower()}\n{PROTEIN[12:]}\n\n; a comment\n>P2\nACDEF GHIKL\n"
REACTION = "CC(=O)O.OCC>>CC(=O)OCC"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    make = {"esm": tiny.esm_folder, "antibody": tiny.antibody_folder}
    return {name: of(tmp_path_factory.mktemp(name)) for name, of in make.items()}


@pytest.fixture(scope="module", params=["esm", "antibody"])
def protein(request: Any, folders: dict[str, Path]) -> HuggingFaceMaskedLM:
    return maskropolis.load(str(folders[request.param]), format="fasta")


@pytest.fixture(scope="module")
def reactions(rxnmapper_folder: Path) -> HuggingFaceMaskedLM:
    """Without naming a tokenizer: the format brings it."""
    return maskropolis.load(str(rxnmapper_folder), format="smiles", allow_pickle=True)


def invoke(*arguments: str) -> tuple[str, BaseException | None]:
    result = CliRunner().invoke(cli.application, list(arguments), standalone_mode=False)
    return result.stdout, result.exception


def test_letters_are_tokens(protein: HuggingFaceMaskedLM) -> None:
    codec = protein.codec
    row = codec.encode([PROTEIN.lower()])
    assert row.tokens[0].tolist() == codec.tokenizer(" ".join(PROTEIN))["input_ids"]
    assert codec.decode(row) == [PROTEIN] and int(row.free_counts[0]) == len(PROTEIN)
    assert codec.pieces(protein.allowed.nonzero()[:, 0].tolist()) == list(tiny.ESM_LETTERS)


def test_templates_spans_and_words(protein: HuggingFaceMaskedLM) -> None:
    codec, mask = protein.codec, protein.codec.tokenizer.mask_token
    row = codec.template([f"MK[MASK]T{mask}"])
    assert row.free[0].tolist() == [False, False, False, True, False, True, False]
    assert codec.decode(row) == [f"MK{mask}T{mask}"]
    assert codec.fixed_spans("MKTAYTA", ["TA"]).free[0].int().tolist() == [0, 1, 1, 0, 0, 1, 0, 0, 0]
    assert codec.spelling("rgd") == tuple(codec.entry(letter) for letter in "RGD")
    samples = maskropolis.sample(protein, length=8, require=["RGD"], chains=3, burn_in=1, thin=1)
    assert all("RGD" in text and len(text) == 8 for text in samples.texts)


def test_chains_of_an_antibody(folders: dict[str, Path]) -> None:
    codec = maskropolis.load(str(folders["antibody"]), format="fasta").codec
    row = codec.encode(["EVQ[SEP]DIQ"])
    assert row.free[0].tolist() == [False, True, True, True, False, True, True, True, False]
    assert codec.decode(row) == ["EVQ[SEP]DIQ"]


def test_context_is_seen_and_not_scored(protein: HuggingFaceMaskedLM) -> None:
    whole = maskropolis.score(PROTEIN, protein)[0]
    part = maskropolis.score(PROTEIN[5:], protein, prefix=PROTEIN[:5], metric="all")[0]
    assert part.tokens == tuple(PROTEIN[5:])
    assert part.pll == pytest.approx(sum(whole.log_probabilities[5:]), abs=1e-4)
    assert part.pll_word_l2r == pytest.approx(part.pll, abs=1e-6)


def test_fasta_there_and_back_with_names(folders: dict[str, Path], tmp_path: Path) -> None:
    source, model = tmp_path / "in.fasta", str(folders["esm"])
    source.write_text(FASTA)
    records = list(read_records(str(source)))
    assert [(r.other["name"], r.text.upper()) for r in records] == [
        ("sp|P1|X first one", PROTEIN),
        ("P2", "ACDEFGHIKL"),
    ]
    target = tmp_path / "out.fasta"
    arguments = ["-m", model, "--burn-in", "1", "--thin", "1"]
    assert invoke("sample", "--from", str(source), "-o", str(target), *arguments)[1] is None
    again = list(read_records(str(target)))
    assert [r.other["name"].split(" chain=")[0] for r in again] == ["sp|P1|X first one", "P2"]
    assert [len(r.text) for r in again] == [20, 10] and "energy=" in again[0].other["name"]
    shown, error = invoke("sample", "--from", str(source), "--fix", "C", *arguments)
    assert isinstance(error, InputError) and "does not occur" in str(error)
    shown, error = invoke("score", str(source), "-m", model)
    assert error is None and '"name": "sp|P1|X first one"' in shown and shown.count('"pll"') == 2


def test_a_run_folder_remembers_format_and_names(folders: dict[str, Path], tmp_path: Path) -> None:
    source = tmp_path / "in.fa"
    source.write_text(FASTA)
    model, run = str(folders["antibody"]), str(tmp_path / "run")
    shown, error = invoke("sample", "--from", str(source), "-m", model, "--steps", "6", "--out", run)
    assert error is None and shown.startswith(">sp|P1|X first one chain=0")
    shown, error = invoke("resume", str(tmp_path / "run"), "--steps", "9")
    assert error is None and shown.startswith(">sp|P1|X first one chain=0 step=6")
    assert all(" " not in record["text"] for record in maskropolis.open_run(tmp_path / "run"))


def test_a_letter_outside_the_alphabet_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    source = tmp_path / "bad.fasta"
    source.write_text(">good\nMKT\n>bad one\nMKTA\nYJA\n")
    for command in (["score", str(source)], ["sample", "--from", str(source)], ["mutate", str(source)]):
        _, error = invoke(*command, "-m", str(folders["esm"]))
        assert isinstance(error, InputError)
        assert "the letter 'J' at position 6" in str(error)
        assert "bad.fasta, record 'bad'" in str(error) or command[0] == "sample"


def test_reactions_without_spaces(reactions: HuggingFaceMaskedLM, tmp_path: Path) -> None:
    codec = reactions.codec
    assert codec.decode(codec.encode([f" {REACTION[:9]} {REACTION[9:]}"])) == [REACTION]
    free = codec.fixed_spans(REACTION, [">>CC(=O)OCC"]).free[0]
    assert int(free.sum()) == 11
    with pytest.raises(InputError, match=r"token '\[Xx\]' at position 3"):
        codec.ids("CC[Xx]O")
    file = tmp_path / "two.smi"
    with open_records(str(file)) as write:
        write([{"text": REACTION, "name": "ester a", "energy": 1.5}, {"text": "CCO", "chain": 4}])
    records = list(read_records(str(file)))
    assert [(r.text, r.other["name"]) for r in records] == [(REACTION, "ester a energy=1.5"), ("CCO", "chain_4")]
    samples = maskropolis.sample(reactions, template="CC(=O)[MASK].NCC>>CC(=O)[MASK]CC", chains=2, burn_in=1, thin=1)
    assert all(" " not in text and text.endswith("CC") for text in samples.texts)


def test_tokens_between_spaces(tiny_folder: Path) -> None:
    model, plain = maskropolis.load(str(tiny_folder), format="tokens"), maskropolis.load(str(tiny_folder))
    row = model.codec.encode(["un ##happy ##ing cat"])
    assert torch.equal(row.tokens, plain.codec.encode(["unhappying cat"]).tokens)
    assert model.codec.decode(row) == ["un ##happy ##ing cat"]
    assert model.codec.fixed_spans("un ##happy cat", ["##happy"]).free[0].tolist() == [False, True, False, True, False]
    one, other = maskropolis.score("the cat sat", model)[0], maskropolis.score("the cat sat", plain)[0]
    assert one.pll == pytest.approx(other.pll, abs=1e-5)
    with pytest.raises(InputError, match="'dog' at position 2"):
        model.codec.ids("the dog")
    with pytest.raises(InputError, match="--format text"):
        maskropolis.score("the cat", model, metric="pll-word-l2r")


def test_tables_hold_any_alphabet(folders: dict[str, Path], tmp_path: Path) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("id,sequence\n7,MKT\n8,ACD\n")
    assert [r.text for r in read_records(str(source), Fields(text="sequence"), "fasta")] == ["MKT", "ACD"]
    options = ["--format", "fasta", "--text-field", "sequence", "--per-token"]
    _, error = invoke("score", str(source), "-o", str(target), "-m", str(folders["antibody"]), *options)
    assert error is None
    with target.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["id"], row["text"], row["tokens"]) for row in rows] == [("7", "MKT", "3"), ("8", "ACD", "3")]
    assert rows[0]["per_token"].startswith('[{"token": "M"')


def test_bad_input(tiny_bert: HuggingFaceMaskedLM, tmp_path: Path) -> None:
    file = tmp_path / "bad.fasta"
    for content, message in ((">a\n>b\nMK\n", "record 'a' is empty"), ("MK\n", "line 1 comes before any header")):
        file.write_text(content)
        with pytest.raises(InputError, match=message):
            list(read_records(str(file)))
    with pytest.raises(InputError, match="did you mean 'fasta'"):
        codec_for("fastq", tiny_bert.codec.tokenizer)
    with pytest.raises(ModelError, match="no single letters"):
        codec_for("fasta", _Words(tiny_bert.codec.tokenizer))
    with pytest.raises(InputError, match="these results are a table"), open_records(str(tmp_path / "o.fasta")) as write:
        write([{"mutant": "A2V"}])
    with pytest.raises(InputError, match="not in the first row"), open_records(str(tmp_path / "o.csv")) as write:
        write([{"a": 1}, {"a": 1, "b": 2}])


class _Words:
    """A tokenizer whose vocabulary has words only."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_vocab(self) -> dict[str, int]:
        return {entry: index for entry, index in self._inner.get_vocab().items() if len(entry) > 1}
