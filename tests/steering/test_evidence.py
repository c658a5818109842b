"""The steering experiment: its text is divided as it says, and its tables say what results.json says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import tiny

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments/steering"))

import measuring
import passages
import report

from maskropolis.errors import InputError


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Two books an author; every sentence of the second says that it is held out."""
    for author, held_out in passages.AUTHORS.items():
        plain = [f"The {word} cat of {author} sat on “the mat”. Short one. It’s 12 cats, no sentence for us.\n"
                 for word in ["big", "red", "sad", "old", "new", "wet", "dry", "mad", "fat", "bad"]]  # fmt: skip
        first = held_out.partition("_")[0]
        (tmp_path / f"{first}_another.txt").write_text("".join(plain))
        (tmp_path / f"{held_out}.txt").write_text("".join(line.replace("big", "held out") for line in plain))
    return tmp_path


def test_the_text_is_divided(books: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "SHORTEST", 12)  # the tiny tokenizer spells words out
    monkeypatch.setattr(passages, "LONGEST", 90)
    ours, theirs = passages.training(books, tiny.tokenizer(), 5, seed=0)
    test = passages.held_out(books, tiny.tokenizer(), 10, seed=0)
    assert len(ours) == len(theirs) == 20 and len(test) == 40
    assert not set(ours) & set(theirs)
    assert sum("held out" in passage.text for passage in test) == 4
    assert not any("held out" in passage.text for passage in ours + theirs)
    assert all('sat on "the mat".' in passage.text and passage.author in passage.text for passage in ours + test)
    with pytest.raises(InputError, match="expected at least 2"):
        passages.training(books / "none", tiny.tokenizer(), 5, seed=0)


def test_estimates_resample_chains() -> None:
    """Perplexity is that of all tokens together; states of one chain go together."""
    found = [
        measuring.State("", [], f"run/{chain}", values={"surprise": 2.0 * chain, "judged": 2.0, "good": float(chain)})
        for chain in (0, 1)
        for _ in range(3)
    ]
    made = measuring.estimate(found, "surprise", "judged", exponential=True)
    assert made["value"] == pytest.approx(2.71828 ** (6 / 12), abs=1e-3)
    assert measuring.estimate(found, "good") == {"value": 0.5, "low": 0.0, "high": 1.0}
    assert measuring.estimate(found[:3], "good") == {"value": 0.0, "low": None, "high": None}
    assert measuring.estimate([], "good") == {} and measuring.groups_of(found) == [0, 0, 0, 1, 1, 1]


def _results() -> dict[str, Any]:
    one = {"value": 0.5, "low": 0.25, "high": 0.75}
    system = {"system": "one word required", "satisfied": {"value": 1.0, "low": 1.0, "high": 1.0}, "perplexity": one}
    return {
        "scale": "full", "seed": 0, "versions": {"maskropolis": "0"}, "machine": {"cpu": "a processor"},
        "keywords": {"words": ["sea"], "pairs": [], "systems": [system | {"energy": one, "states": 4}]},
        "reactions": {"reactions": {"r": "C>>C"}, "kernel": "block", "weights": [
            {"weight": 3.0, "valid": one, "invalid_molecules": one, "energy": one, "distinct": 3, "states": 4,
             "rows": 80}
        ]},
    }  # fmt: skip


def test_tables_and_their_place(tmp_path: Path) -> None:
    made = report.tables(_results())
    assert "| one word required | 100% (100%–100%) | 0 (0–1) | 0.50 (0.25–0.75) | 4 |" in made
    assert "| α = 3 | 50% (25%–75%) | 0.50 (0.25–0.75) | 0.50 (0.25–0.75) | 3 of 4 | 20 |" in made
    assert report.links(_results()).count(".png") == 2 and "style.png" not in report.links(_results())
    assert "Author style" not in made and "a processor" in made
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    for _ in range(2):
        report.put_into(page, made)
    assert page.read_text() == f"before\n{report.BEGIN}\n\n{made}\n\n{report.END}\nafter\n"
    page.write_text("nothing")
    with pytest.raises(SystemExit, match="no place"):
        report.put_into(page, made)


def test_no_folders_in_signatures() -> None:
    signature = "maskropolis|energy:norm+classifier:/home/my work/expert:doyle:4|kernel:single-site"
    found = report.without_folder({"a": [signature, 1.0, None], "b": "/home"}, Path("/home/my work"))
    assert found == {"a": [signature.replace("/home/my work/", ""), 1.0, None], "b": "/home"}
