"""The page: complete, self-contained, and safe with whatever text a model or a user writes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import maskropolis
from maskropolis.errors import InputError
from maskropolis.report import render
from maskropolis.report.sentences import evenly, texts_of
from maskropolis.report.svg import ticks


class Structure(HTMLParser):
    """Counts elements and collects what is shown; complains about elements that are not closed."""

    VOID = ("meta", "line", "rect", "polyline", "br", "img", "link", "text")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.shown: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.links += [str(value) for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.shown.append(data)


def run(model: Any, **settings: Any) -> Any:
    given = {"length": 4, "chains": 2, "samples": 8, "thin": 1, "burn_in": 2, "seed": 3, "progress": False}
    return maskropolis.sample(model, **(given | settings))


@pytest.fixture(scope="module")
def samples(tiny_bert: Any) -> Any:
    return run(tiny_bert)


@pytest.fixture(scope="module")
def page(samples: Any, tiny_bert: Any) -> str:
    return render(samples, tiny_bert)


def test_the_page_is_whole_and_needs_nothing_from_outside(page: str, samples: Any) -> None:
    structure = Structure(page)
    assert structure.open == []
    assert structure.counts["svg"] == 5
    assert "script" not in structure.counts
    assert structure.links == []
    assert not re.search(r"https?://|url\(|@import", page)
    assert len(page) < 300_000
    assert samples.signature in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_samples_come_by_energy_with_their_probabilities(page: str, samples: Any, tiny_bert: Any) -> None:
    listed = page.split("Samples, lowest energy first")[1].split("How a sentence changed")[0]
    energies = [float(value) for value in re.findall(r'class="energy">(-?[\d.]+)<', listed)]
    assert energies == sorted(energies)
    assert energies[0] == pytest.approx(min(samples.energy), abs=0.006)
    shares = [float(value) for value in re.findall(r'title="p = ([\d.e-]+)"', listed)]
    assert len(shares) == 4 * len(energies)
    best = min(samples, key=lambda record: record["energy"])
    first = shares[:4]
    import math

    assert -sum(math.log(share) for share in first) == pytest.approx(best["energy"], rel=2e-2)


def test_hostile_text_is_shown_as_text(tiny_bert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text that reaches a page: signature, label, sentences, tokens, notices."""
    evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;"
    hostile = run(tiny_bert)
    hostile.signature = f"maskropolis|model:{evil}|energy:norm"
    hostile.config["lengths"], hostile.config["texts"] = [], [evil]
    hostile.notices.append(evil)
    for record in hostile.records:
        record["text"] = evil
    decode = tiny_bert.codec.tokenizer.decode
    monkeypatch.setattr(tiny_bert.codec.tokenizer, "decode", lambda ids, **_: evil * len(ids))
    pages = [render(hostile, tiny_bert), render(hostile, None, note=evil)]
    assert decode is not None
    for page in pages:
        structure = Structure(page)
        assert structure.open == []
        assert "script" not in structure.counts
        assert "img" not in structure.counts
        assert "<script" not in page
        assert evil in "".join(structure.shown)


@pytest.mark.parametrize(
    "settings", [{"kernel": "gibbs"}, {"samples": 1}, {"length": [2, 3]}, {"final_temperature": 0.3}, {"chains": 1}]
)
def test_every_kind_of_run_has_a_page(settings: dict[str, Any], tiny_bert: Any) -> None:
    structure = Structure(render(run(tiny_bert, **({"samples": 4} | settings)), tiny_bert))
    assert structure.open == []
    assert structure.counts["svg"] >= 4


def test_without_the_model_the_page_says_so(samples: Any) -> None:
    page = render(samples, None, "it went away")
    assert "Tokens are not shaded: it went away" in page
    assert 'class="t" style="--p:' not in page.split("Tokens are not shaded")[1]


def test_token_texts_make_up_the_sentence(samples: Any, tiny_bert: Any) -> None:
    for record in samples.records[:6]:
        pieces = texts_of(record["token_ids"], record["text"], tiny_bert)
        assert "".join(text for _, text in pieces).split() == record["text"].split()


def test_small_helpers() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(-3, 11) == [0, 5, 10]
    assert evenly(0, 5) == []
    assert evenly(3, 5) == [0, 1, 2]
    assert evenly(100, 3)[0] == 0
    assert evenly(100, 3)[-1] == 99


def test_the_command(tiny_folder: Path, tmp_path: Path) -> None:
    from maskropolis import cli

    folder, file = tmp_path / "run", tmp_path / "report.html"
    run(str(tiny_folder), out=folder)
    done = CliRunner().invoke(cli.application, ["report", str(folder), "-o", str(file)])
    assert done.exit_code == 0, done.output
    assert 'title="p = ' in file.read_text()
    again = CliRunner().invoke(cli.application, ["report", str(folder), "-o", str(file)])
    assert isinstance(again.exception, InputError)
    plain = CliRunner().invoke(cli.application, ["report", str(folder), "-o", str(file), "--no-model", "--overwrite"])
    assert plain.exit_code == 0
    assert "Tokens are not shaded: --no-model" in file.read_text()
