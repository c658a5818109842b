"""Every figure that README and docs quote is the one in the committed result file that the document names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from figures import lookup, problem, quotes, unsourced

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "benchmarks/README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_quoted_figures_are_those_of_the_files(document: Path) -> None:
    name = document.relative_to(ROOT).as_posix()
    text = document.read_text(encoding="utf-8")
    wrong = [said for quote in quotes(text, name) if (said := problem(quote, ROOT))]
    assert not wrong, "\n".join(wrong)
    assert unsourced(text) == [], "name the result file in a comment behind each figure"


def test_the_check_sees_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(
        json.dumps({"a": {"b/c": 0.12345}, "list": [{"name": "x", "value": 3120}, 7], "t": "1"})
    )
    good = [
        "0.123<!-- r.json#/a/b~1c -->", "12.3%<!-- r.json#/a/b~1c -->", "**0.12** <!-- r.json#/a/b~1c -->",
        "3,120<!-- r.json#/list/x/value -->", "0.0031 million<!-- r.json#/list/0/value -->", "7 <!--r.json#/list/1-->",
    ]  # fmt: skip
    bad = {
        "0.124<!-- r.json#/a/b~1c -->": "quotes 0.124, but r.json has 0.12345",
        "−0.123<!-- r.json#/a/b~1c -->": "quotes −0.123",
        "0.123<!-- none.json#/a -->": "there is no none.json",
        "0.123<!-- r.json#/a/d -->": "r.json has no /a/d",
        "3<!-- r.json#/list/9 -->": "has no /list/9",
        "1<!-- r.json#/t -->": "is no number",
        "much<!-- r.json#/a/b~1c -->": "no number stands before",
    }
    assert [problem(quote, tmp_path) for text in good for quote in quotes(text, "x.md")] == [""] * 6
    for text, message in bad.items():
        (quote,) = quotes(f"line\n{text}", "x.md")
        assert problem(quote, tmp_path).startswith("x.md, line 2: ") and message in problem(quote, tmp_path)


def test_figures_without_a_file_are_seen() -> None:
    assert unsourced("It is 2.5 times as fast.") == ["It is 2.5 times as fast."]
    assert unsourced("It is 2.5<!-- r.json#/a --> times as fast.") == []
    assert unsourced("<!-- evidence: run.py table -->\n\nBLEU 31.2\n\n<!-- end of evidence -->") == []
    assert unsourced("2.5<!-- r.json#/a --> to 3.5 times as fast") != []
    assert unsourced("| kernel | acceptance |\n| --- | --- |\n| mh | 0.29 |") != []
    for harmless in (
        "R-hat ≤ 1.01 and perplexity",
        "`--temperature 0.8` and BLEU",
        "Version 1.5 is out.",
        "```\nBLEU 3.5\n```",
    ):
        assert unsourced(harmless) == []


def test_examples_in_code_are_no_quotes() -> None:
    text = "```md\n2<!-- r.json#/a -->\n```\n3<!-- r.json#/b -->"
    assert [(quote.where, quote.number) for quote in quotes(text, "x.md")] == [("x.md, line 4", "3")]


def test_pointers() -> None:
    assert lookup({"a": [{"name": "n", "v": 1}]}, "/a/n/v") == lookup({"a": [{"v": 1}]}, "/a/0/v") == 1
    assert lookup(5, "") == 5
