"""The RDKit expert: what it counts, that it steers, and what it says where RDKit is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import maskropolis
from maskropolis.errors import InputError
from maskropolis.targets.energy import NORM
from maskropolis.targets.experts.smiles import SmilesValidity
from maskropolis.targets.experts.specification import Specification

CASES = {
    "CC(=O)O.OCC>>CC(=O)OCC": 0,
    "c1ccccc1": 0,
    "C1.C1": 0,  # one molecule, its ring bond written across the dot
    "C(C)(C)(C)(C)C": 1,
    "CC(": 1,
    "c1ccccc1>>": 1,
    "": 1,
    ">>": 2,
    "C>C": 1,
    "CC((.O.C1>>C": 2,
    "CC>[Pd>C": 1,
    "CC name": 1,
    "C..C": 1,
}


@pytest.fixture
def validity() -> SmilesValidity:
    pytest.importorskip("rdkit")
    return SmilesValidity.load()


@pytest.mark.parametrize(("text", "invalid"), CASES.items())
def test_what_it_counts(validity: SmilesValidity, text: str, invalid: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert validity.invalid(text) == invalid
    assert capfd.readouterr().err == ""  # RDKit's own complaints are kept quiet


def test_it_adds_to_the_energy_of_a_real_model(validity: SmilesValidity, rxnmapper_folder: Path) -> None:
    model = maskropolis.load(str(rxnmapper_folder), tokenizer="smiles", allow_pickle=True)
    settings = {"template": "[MASK][MASK][MASK]>>CCO", "start": "random", "chains": 3, "seed": 1, "steps": 3}
    samples = maskropolis.sample(model, **settings, experts=["smiles-validity:30"])
    counts = [validity.invalid(text) for text in samples.texts]
    assert len(set(counts)) > 1
    for record, count in zip(samples, counts, strict=True):
        ids = record["token_ids"]
        row = model.codec.pad([ids], [[1 <= t <= 3 for t in range(len(ids))]])
        assert record["energy"] == pytest.approx(float(NORM.evaluate(model, row).energy[0]) + 30 * count, abs=1e-3)


def test_without_rdkit(tiny_bert: object, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rdkit", "rdkit.Chem", "rdkit.rdBase"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"needs RDKit, which is not installed; pip install 'maskropolis\[chem\]'"):
        maskropolis.sample(tiny_bert, length=4, experts=["smiles-validity:3"])


@pytest.mark.parametrize("text", ["smiles-validity", "smiles-validity:", "smiles-validity:much", "smiles-validity:x:3"])
def test_malformed(text: str) -> None:
    with pytest.raises(InputError, match="expected smiles-validity:WEIGHT"):
        Specification.parse(text)
    with pytest.raises(InputError, match="negative weight"):
        Specification.parse("smiles-validity:-1")
