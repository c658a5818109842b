"""The table of docs/kernels.md that says which kernel to use is that of the committed measurements."""

from __future__ import annotations

from benchmarks import which


def test_the_page_holds_the_table_of_the_file() -> None:
    page = which.PAGE.read_text(encoding="utf-8")
    assert which.written(page) == page and which.table().count("\n") > 12
