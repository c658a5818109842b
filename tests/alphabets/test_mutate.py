"""Mutation scores and entropies against plain transformers, their cost in model rows, and the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor
from typer.testing import CliRunner

import maskropolis
from maskropolis import HuggingFaceMaskedLM, cli
from maskropolis.errors import InputError
from maskropolis.mutation import METHODS, mutate, prepare, score_mutants
from maskropolis.records import Record

WILD = "MKTAYIAKQR"
SOME = ["K2R", "K2R:T3S", "T3S", "Y5W:K2R:I6L", "A4A", "K2A"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    make = {"esm": tiny.esm_folder, "antibody": tiny.antibody_folder}
    return {name: of(tmp_path_factory.mktemp(name)) for name, of in make.items()}


@pytest.fixture(scope="module", params=["esm", "antibody"])
def protein(request: Any, folders: dict[str, Path]) -> HuggingFaceMaskedLM:
    return maskropolis.load(str(folders[request.param]), format="fasta")


def log_p(model: HuggingFaceMaskedLM, letters: str, masked: list[int]) -> Tensor:
    """[n, V] log softmax of the plain network at the letters, with the places `masked` (from 0) masked."""
    ids = torch.tensor([model.codec.ids(letters)])
    for place in masked:
        ids[0, place + 1] = model.mask_token
    with torch.inference_mode():
        return model.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, 1:-1].log_softmax(-1)


def parts(mutant: str) -> list[tuple[int, str, str]]:
    return [(int(part[1:-1]) - 1, part[0], part[-1]) for part in mutant.split(":")]


def changed(mutant: str) -> str:
    letters = list(WILD)
    for place, _, new in parts(mutant):
        letters[place] = new
    return "".join(letters)


def log_odds(model: HuggingFaceMaskedLM, mutant: str, masked: bool) -> float:
    at = log_p(model, WILD, [place for place, _, _ in parts(mutant)] if masked else [])
    entry = model.codec.entry
    return sum(float(at[place, entry(new)] - at[place, entry(old)]) for place, old, new in parts(mutant))


def test_scores_against_the_definitions(protein: HuggingFaceMaskedLM) -> None:
    found = mutate(WILD, protein, mutants=SOME, method=METHODS)
    assert [score.mutant for score in found] == SOME
    plls = {text: maskropolis.score(text, protein)[0].pll for text in {WILD, *map(changed, SOME)}}
    for score in found:
        assert score.scores["masked-marginals"] == pytest.approx(log_odds(protein, score.mutant, True), abs=1e-4)
        assert score.scores["wt-marginals"] == pytest.approx(log_odds(protein, score.mutant, False), abs=1e-4)
        difference = plls[changed(score.mutant)] - plls[WILD]
        assert score.scores["pll-difference"] == pytest.approx(difference, abs=1e-4)
    assert len({round(score.scores["masked-marginals"], 3) for score in found}) == len(SOME)


@pytest.mark.parametrize("method", METHODS)
def test_rows_are_stated_and_few(folders: dict[str, Path], method: str) -> None:
    model, n = maskropolis.load(str(folders["esm"]), format="fasta"), len(WILD)
    expected = {
        "masked-marginals": (n, 5),
        "wt-marginals": (1, 1),
        "pll-difference": (n + 19 * n * (n - 1), n + 3 * (n - 1) + (n - 2) + (n - 3) + 3),
    }[method]
    for mutants, rows in ((None, expected[0]), ([(text, {}) for text in SOME], expected[1])):
        task, made = prepare(Record(WILD, 1, "wild type"), model, mutants), []
        inner, asked = model._parts.head, 0

        def head(hidden: Tensor, inner: Any = inner) -> Tensor:
            nonlocal asked
            asked += hidden.shape[0] * hidden.shape[1]
            return inner(hidden)

        model._parts.head = head
        scores = list(score_mutants(task, model, [method], made.append))
        model._parts.head = inner
        assert sum(made) == task.rows([method]) == rows
        assert len(scores) == (19 * n if mutants is None else len(SOME))
        if method != "pll-difference":
            assert asked == {"masked-marginals": (n, 8), "wt-marginals": (n, 5)}[method][mutants is not None]
        else:
            assert asked == rows


def test_every_point_mutant(protein: HuggingFaceMaskedLM) -> None:
    found = mutate(WILD, protein)
    assert len(found) == 19 * len(WILD) and {score.substitutes[0] for score in found} == set("ACDEFGHIKLMNPQRSTVWY")
    assert found[0].mutant == "M1A" and found[-1].mutant == "R10Y"
    for score in found[::31]:
        assert score.scores["masked-marginals"] == pytest.approx(log_odds(protein, score.mutant, True), abs=1e-4)
    assert len(mutate(WILD, protein, to="=A,V")) == 2 * len(WILD) - 2


def test_entropy_and_likeliest(protein: HuggingFaceMaskedLM) -> None:
    found = maskropolis.entropy(WILD, protein, first=101)
    assert [score.token for score in found] == list(WILD) and found[0].position == 101
    for place, score in enumerate(found):
        row = log_p(protein, WILD, [place])[place].double()
        assert score.entropy == pytest.approx(-float((row.exp() * row).sum()), abs=1e-4)
        assert score.log_probability == pytest.approx(float(row[protein.codec.entry(WILD[place])]), abs=1e-4)
        amino = {letter: float(row[protein.codec.entry(letter)].exp()) for letter in "ACDEFGHIKLMNPQRSTVWY"}
        best = sorted(amino.items(), key=lambda pair: -pair[1])[:5]
        assert [token for token, _ in score.likeliest] == [token for token, _ in best]
        assert [p for _, p in score.likeliest] == pytest.approx([p for _, p in best], abs=1e-5)


def test_a_real_chemistry_model(rxnmapper_folder: Path) -> None:
    model = maskropolis.load(str(rxnmapper_folder), format="smiles", allow_pickle=True)
    reaction = "CC(=O)O.OCC>>CC(=O)OCC"
    found = mutate(reaction, model, mutants=["O7N", "O7N O9S", ".8.", "=4#"], method=METHODS)
    ids = torch.tensor([model.codec.ids(reaction)])
    with torch.inference_mode():
        plain = model.model(input_ids=ids).logits[0, 7].log_softmax(-1)
    n, o = model.codec.entry("N"), model.codec.entry("O")
    assert found[0].scores["wt-marginals"] == pytest.approx(float(plain[n] - plain[o]), abs=1e-3)
    amine, ester = (maskropolis.score(text, model)[0].pll for text in ("CC(=O)N.OCC>>CC(=O)OCC", reaction))
    assert found[0].scores["pll-difference"] == pytest.approx(amine - ester, abs=2e-3)
    assert found[2].scores["masked-marginals"] == 0 and found[3].substitutes == ("#",)
    assert found[1].positions == (7, 9)


BAD = [
    ("A2V", "A2V does not fit sequence 1: position 2 is K, not A"),
    ("K23V", "its positions are 1 to 10"),
    ("K0V", "its positions are 1 to 10"),
    ("K2", "'K2' is not a mutation; expected"),
    ("2KV", "is not a mutation"),
    ("K2J", "the 'J' of K2J is not in the model's alphabet"),
    ("K2R:K2S", "changes position 2 twice"),
    ("K2-", "not a token that a sequence may hold"),
    ("", "an empty mutant"),
]


@pytest.mark.parametrize(("mutant", "message"), BAD)
def test_a_mutant_that_does_not_fit(folders: dict[str, Path], mutant: str, message: str) -> None:
    model = maskropolis.load(str(folders["esm"]), format="fasta")
    with pytest.raises(InputError, match=message):
        mutate(WILD, model, mutants=[mutant])


def invoke(*arguments: str) -> tuple[str, BaseException | None]:
    result = CliRunner().invoke(cli.application, ["mutate", *arguments], standalone_mode=False)
    return result.stdout, result.exception


def test_the_command(folders: dict[str, Path], tmp_path: Path) -> None:
    wild, listed, out = tmp_path / "wild.fasta", tmp_path / "dms.csv", tmp_path / "out.csv"
    wild.write_text(f">W <script> one\n{WILD}\n")
    listed.write_text("mutant,measured\nK12R,0.5\nK12R:T13S,-1\n")
    model = ["-m", str(folders["esm"]), "--first", "11"]
    _, error = invoke(str(wild), "--mutants", str(listed), "-o", str(out), "--method", "wt-marginals", *model)
    assert error is None
    with out.open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["measured", "name", "mutant", "wt_marginals"]
    assert [(row["measured"], row["mutant"]) for row in rows] == [("0.5", "K12R"), ("-1", "K12R:T13S")]
    expected = mutate(WILD, maskropolis.load(str(folders["esm"]), format="fasta"), mutants="K2R", method="wt-marginals")
    assert float(rows[0]["wt_marginals"]) == pytest.approx(expected[0].scores["wt-marginals"], abs=1e-5)
    html = tmp_path / "map.html"
    shown, error = invoke(str(wild), "--heatmap", str(html), "--top", "3", *model)
    assert error is None and len(shown.splitlines()) == 4
    assert "<script> one" not in html.read_text() and "K12" in html.read_text()
    shown, error = invoke(str(wild), "--entropy", *model)
    assert error is None and len(shown.splitlines()) == len(WILD) + 1 and "likeliest" in shown


def test_mutants_of_several_wild_types(folders: dict[str, Path], tmp_path: Path) -> None:
    wild, listed, out = tmp_path / "wild.fasta", tmp_path / "dms.csv", tmp_path / "out.jsonl"
    wild.write_text(f">one first\n{WILD}\n>two\nACDEF\n>three\nACD\n")
    listed.write_text("name,mutant\ntwo,C2R\none,K2R\ntwo,C2R:D3S\n")
    arguments = [str(wild), "--mutants", str(listed), "-m", str(folders["esm"])]
    assert invoke(*arguments, "-o", str(out))[1] is None
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["name"], row["mutant"]) for row in rows] == [
        ("one first", "K2R"), ("two", "C2R"), ("two", "C2R:D3S"),
    ]  # fmt: skip
    listed.write_text("name,mutant\nfour,C2R\n")
    assert "the mutant C2R is of 'four'" in str(invoke(*arguments)[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either a FILE"),
        (["--text", WILD, "--method", "masked"], "did you mean 'masked-marginals'"),
        (["--text", WILD, "--mutants", "A1V", "--entropy"], "--entropy lists positions"),
        (["--text", WILD, "--heatmap", "a.png"], "ends in .html"),
        (["--text", WILD, "--mutants", "nowhere.csv"], "'nowhere.csv' does not exist"),
        (["--text", WILD, "--mutants", ","], "list of mutants is empty"),
        (["--text", WILD, "--to", "amin"], "did you mean 'amino'"),
        (["--text", WILD, "--top", "0"], "--top 0 is out of range"),
        (["--text", WILD, "--format", "fastq"], "did you mean 'fasta'"),
        (["--text", WILD, "--text", WILD, "--heatmap", "a.html"], "shows one sequence"),
        (["--text", WILD, "--text", WILD[1:], "--mutants", "K2R"], "does not fit --text 2: position 2 is T, not K"),
    ],
)
def test_bad_input(folders: dict[str, Path], arguments: list[str], message: str) -> None:
    format = [] if "--format" in arguments else ["--format", "fasta"]
    _, error = invoke(*arguments, *format, "-m", str(folders["esm"]))
    assert isinstance(error, InputError) and message in str(error), error
