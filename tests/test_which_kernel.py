"""The tables of docs/kernels.md that say which kernel to use are those of the committed measurements."""

from __future__ import annotations

from benchmarks import which


def test_the_page_holds_the_tables_of_the_file() -> None:
    page = which.PAGE.read_text(encoding="utf-8")
    assert which.written(page) == page and which.tables().count("\n") > 15
