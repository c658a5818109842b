"""One self-contained HTML page about a run."""

from __future__ import annotations

from maskropolis.report.page import render, write_report

__all__ = ["render", "write_report"]
