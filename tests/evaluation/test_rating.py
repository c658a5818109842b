"""Rating sheets: balance, blindness, and refusals that name what is wrong; results against known values."""

from __future__ import annotations

import csv
import html
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wilcoxon

from maskropolis.errors import InputError
from maskropolis.evaluation.intervals import Resampling
from maskropolis.evaluation.rating.agreement import holm, ratings, sign_flip_test
from maskropolis.evaluation.rating.blinding import Design, Question, design
from maskropolis.evaluation.rating.sheets import export, read_answers, read_key, to_csv, to_html
from maskropolis.evaluation.systems import System

SYSTEMS = [System.of(name, [f"{name} wrote line {line}" for line in range(30)]) for name in ("alpha", "beta", "gamma")]


@pytest.fixture
def study() -> Design:
    return design(SYSTEMS, per_system=12, raters=4, seed=7)


def fill(study: Design, folder: Path, rater: int, answer: object = lambda item, question: 2) -> Path:
    """The sheet of `rater` filled in by `answer(item, question)`."""
    file = folder / f"filled-{rater}.csv"
    known = {item.code: item for item in study.items}
    rows = list(csv.DictReader(to_csv(study, rater).splitlines()))
    for row in rows:
        row |= {q.name: str(answer(known[row["item"]], q.name)) for q in study.questions}  # type: ignore[operator]
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_every_rater_gets_every_sentence_balanced(study: Design) -> None:
    assert Counter(item.system for item in study.items) == {"alpha": 12, "beta": 12, "gamma": 12}
    assert len({item.text for item in study.items}) == len({item.code for item in study.items}) == 36
    for rater in range(1, 5):
        sheet = study.sheet(rater)
        assert sorted(item.code for item in sheet) == sorted(item.code for item in study.items)
        for start in range(0, 36, 3):
            assert len({item.block for item in sheet[start : start + 3]}) == 1
            assert {item.system for item in sheet[start : start + 3]} == {"alpha", "beta", "gamma"}
    assert len(set(study.orders)) == 4


def test_the_seed_decides(study: Design) -> None:
    assert design(SYSTEMS, per_system=12, raters=4, seed=7) == study
    assert design(SYSTEMS, per_system=12, raters=4, seed=8).orders != study.orders


def test_no_place_favours_a_system() -> None:
    """First of its block: each of three systems a third of the time, within four standard deviations."""
    study = design(SYSTEMS, per_system=30, raters=40, seed=0)
    first = Counter(study.sheet(rater)[start].system for rater in range(1, 41) for start in range(0, 90, 3))
    spread = 4 * math.sqrt(1200 * (1 / 3) * (2 / 3))
    assert all(abs(count - 400) < spread for count in first.values())


def test_aligned_systems_give_the_same_lines() -> None:
    study = design(SYSTEMS, per_system=5, aligned=True)
    for block in range(5):
        lines = {item.text.split()[-1] for item in study.items if item.block == block}
        assert len(lines) == 1
    with pytest.raises(InputError, match="aligned systems need equally many sentences; found 'alpha' 30, 'x' 6"):
        design([SYSTEMS[0], System.of("x", ["a"] * 6)], per_system=5, aligned=True)


def test_sentences_come_from_as_many_chains_as_there_are() -> None:
    chained = System("chained", tuple(f"chain {c}, state {s}" for s in range(5) for c in range(6)), tuple(range(6)) * 5)
    for count, most in ((6, 1), (9, 2), (30, 5)):
        items = design([chained], per_system=count, seed=3).items
        chains = Counter(item.text.partition(",")[0] for item in items)
        assert max(chains.values()) == most and len(chains) == 6 and len({item.text for item in items}) == count


def test_bad_designs() -> None:
    with pytest.raises(InputError, match="'alpha' holds 30 sentences, fewer than the 50 to rate"):
        design(SYSTEMS)
    with pytest.raises(InputError, match="0 raters"):
        design(SYSTEMS, per_system=5, raters=0)
    with pytest.raises(InputError, match="a scale of 1 to 10"):
        design(SYSTEMS, per_system=5, scale=10)
    with pytest.raises(InputError, match="the question 'item' cannot name a column"):
        design(SYSTEMS, per_system=5, questions=[Question("item", "Is it?")])
    with pytest.raises(InputError, match="two systems have the same name"):
        design([SYSTEMS[0], SYSTEMS[0]], per_system=5)


def test_sheets_are_blind_and_the_key_is_apart(study: Design, tmp_path: Path) -> None:
    named = [System.of(name, [f"line {name[0]}{i}" for i in range(9)]) for name in ("alpha", "beta")]
    export(design(named, per_system=9, raters=2), tmp_path / "out")
    files = sorted(file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*.*"))
    assert files == ["key.json", *(f"sheets/rater-{r}.{kind}" for r in (1, 2) for kind in ("csv", "html"))]
    for file in (tmp_path / "out/sheets").iterdir():
        assert "alpha" not in file.read_text() and "beta" not in file.read_text()
    assert "alpha" in (tmp_path / "out/key.json").read_text()
    with pytest.raises(InputError, match="exists and is not an empty folder"):
        export(study, tmp_path / "out")


def test_key_survives_the_file(study: Design, tmp_path: Path) -> None:
    export(study, tmp_path / "out")
    assert read_key(str(tmp_path / "out")) == study == read_key(str(tmp_path / "out/key.json"))


@pytest.mark.parametrize(
    ("content", "message"), [("{", "is not JSON"), ("{}", "the key is damaged"), ('{"format": 9}', "has format 9")]
)
def test_bad_keys(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "key.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_key(str(tmp_path))
    with pytest.raises(InputError, match="cannot read the key"):
        read_key(str(tmp_path / "none.json"))


def test_text_cannot_act(tmp_path: Path) -> None:
    evil = ["</section><script>alert(1)</script>", '=HYPERLINK("http://x")', 'a "quoted", text', "@SUM(A1)"]
    study = design([System.of("one", evil)], per_system=4, raters=1)
    page = to_html(study, 1)
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert (
        page.count("<script>") == 1 and "default-src 'none'" in page and "http://" not in page.replace("http://x", "")
    )
    shown = [html.unescape(text) for text in re.findall(r'<p class="sentence" dir="auto">(.*?)</p>', page, re.S)]
    assert sorted(shown) == sorted(evil)
    cells = {row["text"] for row in csv.DictReader(to_csv(study, 1).splitlines())}
    assert cells == {evil[0], "'" + evil[1], evil[2], "'" + evil[3]}


def test_means_alpha_and_tests_of_known_answers(study: Design, tmp_path: Path) -> None:
    def answer(item: object, question: str) -> int:
        if question == "coherence":
            return 2
        return {"alpha": 3, "beta": 2, "gamma": 1}[item.system] if item.block % 2 else 2  # type: ignore[attr-defined]

    sheets = [str(fill(study, tmp_path, rater, answer)) for rater in (1, 2, 3)]
    found = ratings(study, read_answers(sheets, study))
    assert found.raters == [1, 2, 3] and found.blocks == 12
    assert {name: one.value for name, one in found.means["fluency"].items()} == {"alpha": 2.5, "beta": 2, "gamma": 1.5}
    assert found.means["coherence"]["alpha"].value == 2
    assert found.alpha["fluency"] == pytest.approx(1) and math.isnan(found.alpha["coherence"])
    first = next(one for one in found.comparisons if (one.first, one.second) == ("alpha", "gamma"))
    assert first.question == "fluency" and first.difference.value == 1
    assert first.difference.low < 1 < first.difference.high
    # six of twelve differences are 2, the others 0: two sign patterns of the 2^6 are as extreme
    assert first.p == pytest.approx(2 / 64)
    assert first.holm == pytest.approx(3 * 2 / 64)
    assert json.dumps(found.to_json(), allow_nan=False)


def test_alpha_is_the_package_s(study: Design, tmp_path: Path) -> None:
    import krippendorff

    random = np.random.default_rng(3)
    sheets = [str(fill(study, tmp_path, rater, lambda item, question: random.integers(1, 4))) for rater in (1, 2, 3, 4)]
    answers = read_answers(sheets, study)
    table = [[one.values["fluency"][item.code] for item in study.items] for one in answers]
    found = ratings(study, answers).alpha["fluency"]
    assert found == pytest.approx(krippendorff.alpha(reliability_data=table, level_of_measurement="ordinal"))
    assert abs(found) < 0.3


def test_sign_flips_agree_with_wilcoxon_where_ranks_are_values() -> None:
    """For differences ±1 … ±9 the mean is the signed-rank statistic, so both exact tests are the same."""
    differences = np.array([1, -2, 3, 4, -5, 6, 7, 8, 9.0])
    assert sign_flip_test(differences, Resampling()) == pytest.approx(wilcoxon(differences, method="exact").pvalue)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.5]) == pytest.approx([1, 1]) and holm([]) == []


def edited(study: Design, folder: Path, edit: object) -> str:
    file = fill(study, folder, 2)
    lines = file.read_text().splitlines()
    file.write_text("\n".join(edit(lines)) + "\n")  # type: ignore[operator]
    return str(file)


CASES = {
    "missing": (lambda lines: [*lines[:-2], lines[-2][:-1], lines[-1][:-3] + ","], r"3 answers missing \(\w{6} coher"),
    "range": (lambda lines: [*lines[:-1], lines[-1][:-1] + "4"], r"1 answer out of range 1 to 3 \(\w{6} cohe.* is '4'"),
    "half": (lambda lines: [*lines[:-1], lines[-1][:-1] + "2.5"], "1 answer out of range 1 to 3"),
    "word": (lambda lines: [*lines[:-1], lines[-1][:-1] + "good"], "coherence is 'good'"),
    "row gone": (lambda lines: lines[:-1], r"1 item not in the sheet \(\w{6}\)"),
    "row twice": (lambda lines: [*lines, lines[-1]], r"1 item more than once \(\w{6}\)"),
    "other study": (lambda lines: [*lines, "2,zzzzzz,text,1,1"], r"1 item not of this study \(zzzzzz\)"),
    "other rater": (lambda lines: [*lines[:-1], "1" + lines[-1][1:]], "its rater is 1, 2; expected one of 1 to 4"),
    "no such rater": (lambda lines: [lines[0], *("9" + line[1:] for line in lines[1:])], "its rater is 9"),
    "column gone": (lambda lines: [lines[0].replace("fluency", "x"), *lines[1:]], "has no column fluency"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_sheets_are_named(study: Design, tmp_path: Path, case: str) -> None:
    edit, message = CASES[case]
    good = str(fill(study, tmp_path, 1))
    with pytest.raises(InputError, match=f"nothing was imported; filled-2.csv: .*{message}"):
        read_answers([good, edited(study, tmp_path, edit)], study)


def test_several_bad_sheets_are_all_named(study: Design, tmp_path: Path) -> None:
    sheets = [fill(study, tmp_path, rater, lambda item, question: 0) for rater in (1, 2)]
    with pytest.raises(InputError, match=r"filled-1\.csv: 72 answers out of range .*; filled-2\.csv: 72 answers"):
        read_answers([str(sheet) for sheet in sheets], study)
    good = str(fill(study, tmp_path, 3))
    with pytest.raises(InputError, match=r"filled-3\.csv: rater 3 answered in filled-3\.csv already"):
        read_answers([good, good], study)


def test_sheets_of_other_programs_are_read(study: Design, tmp_path: Path) -> None:
    file = fill(study, tmp_path, 1)
    rows = list(csv.reader(file.read_text().splitlines()))
    text = "\n".join(";".join([*row[:3], *(f"{cell}.0" if cell == "2" else cell for cell in row[3:])]) for row in rows)
    file.write_text("\ufeff" + text + "\n;;;;\n", encoding="utf-8")
    (found,) = read_answers([str(file)], study)
    assert set(found.values["fluency"].values()) == {2} and len(found.values["fluency"]) == 36


def test_files_that_are_no_sheets(study: Design, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the sheet"):
        read_answers([str(tmp_path / "none.csv")], study)
    (tmp_path / "empty.csv").write_text("\n")
    with pytest.raises(InputError, match="holds no answers"):
        read_answers([str(tmp_path / "empty.csv")], study)
    (tmp_path / "latin.csv").write_bytes(b"rater,item\n1,\xe9\n")
    with pytest.raises(InputError, match="is not UTF-8"):
        read_answers([str(tmp_path / "latin.csv")], study)
    with pytest.raises(InputError, match="no sheets were given"):
        read_answers([], study)
