"""Gaps in prose: their notation, how fillings are joined to it, samples, the best of several, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import maskropolis
from maskropolis import cli
from maskropolis.decoders.gaps import Gap, GappedText, joined
from maskropolis.errors import InputError
from maskropolis.targets.energy import NORM
from maskropolis.targets.lengths import token_offset

QUICK = {"burn_in": 2, "thin": 1, "seed": 3}


def test_gaps_are_read() -> None:
    gapped = GappedText.parse("She [MASK:2-4] and [MASK] [MASK:2 - 3]<mask>.", mask="<mask>")
    assert gapped.prose == ("She ", " and ", ".") and gapped.gaps == (Gap(2, 4), Gap(4, 5))
    assert gapped.bounds == "2-4/4-5" and gapped.variable
    assert set(gapped.lengths(6)) == {(a, b) for a in (2, 3, 4) for b in (4, 5)} == set(gapped.lengths(13))
    assert len(set(gapped.lengths(3))) == 3
    assert gapped.template((2, 4)) == "She [MASK][MASK] and [MASK][MASK][MASK][MASK]."
    assert not GappedText.parse("a [MASK:3]").variable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "nothing to fill"),
        ("a [MASK:x]", "malformed"),
        ("a [MASK:-2]", "malformed"),
        ("a [MASK:0-2]", "out of range"),
        ("a [MASK:4-2]", "out of range"),
    ],
)
def test_gaps_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        GappedText.parse(text)


JOINED = [
    ("The  CAT [MASK:2], un[MASK] on", ["sat", "##ing", "##happy"], "The  CAT sating, unhappy on", ["sating", "happy"]),
    ("[MASK] Cat [MASK]", ["the", "."], "the Cat.", ["the", "."]),
    ("the [MASK] mat", ["##s"], "thes mat", ["s"]),
    ("the\n[MASK]\n mat", ["cat"], "the\ncat\n mat", ["cat"]),
    ("the [MASK] mat", [","], "the, mat", [","]),
    ("the[MASK]mat", ["cat"], "the cat mat", ["cat"]),
    ("un[MASK]ing a [MASK]S", ["##happy", "mat"], "unhappying a matS", ["happy", "mat"]),
    ("A[MASK]ve", [","], "A,ve", [","]),
]


@pytest.mark.parametrize(("template", "filling", "text", "parts"), JOINED)
def test_fillings_are_joined(tiny_bert: Any, template: str, filling: list[str], text: str, parts: list[str]) -> None:
    gapped, codec = GappedText.parse(template), tiny_bert.codec
    row = codec.template([gapped.template([gap.longest for gap in gapped.gaps])])
    ids, free = row.tokens[0].tolist(), row.free[0].tolist()
    tokens = iter(codec.entry(piece) for piece in filling)
    found, spans = joined(codec, gapped, [next(tokens) if may else t for t, may in zip(ids, free, strict=True)], free)
    assert found == text and [span.text for span in spans] == parts
    assert [found[span.start : span.stop] for span in spans] == parts
    assert [span.tokens for span in spans] == [gap.longest for gap in gapped.gaps]


def test_fixed_gaps(tiny_bert: Any) -> None:
    found = maskropolis.fill("The cat [MASK:2] on a [MASK].", tiny_bert, samples=4, **QUICK)
    assert len(found.texts) == 4 and found.offset == 0 and "resize" not in found.signature
    assert found.texts == maskropolis.fill("The cat [MASK:2] on a [MASK].", tiny_bert, samples=4, **QUICK).texts
    for filling in found.fillings:
        assert filling.text.startswith("The cat") and [span.tokens for span in filling.spans] == [2, 1]
        assert filling.text[filling.spans[1].start : filling.spans[1].stop] == filling.spans[1].text
        assert filling.score == filling.energy


def test_gaps_of_unknown_length(tiny_bert: Any) -> None:
    template, settings = "the [MASK:1-3] cat sat on [MASK:2].", QUICK | {"burn_in": 3}
    found = maskropolis.fill(template, tiny_bert, samples=12, allow=["words"], require=["mat"], **settings)
    assert {len(filling.spans) for filling in found.fillings} == {2}
    lengths = {filling.spans[0].tokens for filling in found.fillings}
    assert lengths <= {1, 2, 3} and len(lengths) > 1
    assert {filling.spans[1].tokens for filling in found.fillings} == {2}
    for filling in found.fillings:
        assert "mat" in filling.text.split() or "mat." in filling.text
        assert filling.score == filling.energy
    assert "gaps=1-3/2" in found.signature and found.offset_source == ""


def test_the_best_of_several(tiny_bert: Any) -> None:
    template = "the [MASK:1-2] on a mat."
    best = maskropolis.fill(template, tiny_bert, samples=2, best_of=4, offset=1.5, **QUICK)
    starts = [GappedText.parse(template).template(lengths) for lengths in GappedText.parse(template).lengths(4)]
    kernel = "resize:gaps=1-2"
    every = maskropolis.sample(tiny_bert, template=starts * 2, chains=8, start="sampled", kernel=kernel, **QUICK)
    scores = [record["energy"] - 1.5 * (len(record["token_ids"]) - 7) for record in every]
    assert [filling.score for filling in best.fillings] == pytest.approx([min(scores[:4]), min(scores[4:])])
    assert [filling.sample for filling in best.fillings] == [0, 1]


def test_offsets(tiny_bert: Any) -> None:
    template, texts = "the cat [MASK:1-2]", ["the cat", "a cat sat on a mat", "unhappy mat"]
    given = maskropolis.fill(template, tiny_bert, offset_texts=texts, **QUICK)
    assert given.offset == pytest.approx(token_offset(tiny_bert, NORM, [tiny_bert.codec.encode(texts)]), abs=1e-4)
    assert "3 texts" in given.offset_source
    for filling in given.fillings:
        assert filling.score == pytest.approx(filling.energy - given.offset * filling.spans[0].tokens)
    prose = maskropolis.fill(template, tiny_bert, best_of=2, **QUICK | {"burn_in": 0})
    row = tiny_bert.codec.template(["the cat [MASK]"])
    blank = torch.tensor([[3]])
    with torch.inference_mode():
        logits = tiny_bert.model(input_ids=row.tokens).logits[0, 3].masked_fill(~tiny_bert.allowed, -torch.inf)
    filled = tiny_bert.codec.encode([tiny_bert.codec.decode(row.with_tokens(blank, logits.argmax()[None, None]))[0]])
    terms = NORM.evaluate(tiny_bert, filled).terms[0]
    assert prose.offset == pytest.approx(float(terms[1:3].mean()), abs=1e-3)


def invoke(*arguments: str) -> tuple[str, BaseException | None]:
    result = CliRunner().invoke(cli.application, list(arguments), standalone_mode=False)
    return result.stdout, result.exception


def test_the_command(tiny_folder: Path, tmp_path: Path) -> None:
    out, lines = tmp_path / "out.jsonl", tmp_path / "lines.txt"
    lines.write_text("the cat\n\nthe cat sat on a mat\n")
    common = ["-m", str(tiny_folder), "--burn-in", "2"]
    _, error = invoke("fill", "The cat [MASK:1-2].", "a [MASK]", "-o", str(out), "-n", "2", *common)
    assert error is None
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["line"], row["sample"]) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    for row in rows:
        assert [row["text"][part["start"] : part["stop"]] for part in row["fillings"]] == [row["fillings"][0]["text"]]
    shown, error = invoke("fill", "The cat [MASK:1-2].", "--offset-from", str(lines), "--best-of", "2", *common)
    assert error is None and len(shown.splitlines()) == 5 and "The cat" in shown
    shown, error = invoke(
        "sample", "-l", "3", "-c", "2", "--kernel", "resize:longest=5", "--offset-from", str(lines),
        "--thin", "1", *common,
    )  # fmt: skip
    assert error is None and len(shown.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fill", "a [MASK]", "no gap"], "nothing to fill"),
        (["fill", "a [MASK]", "--best-of", "0"], "best-of 0 is out of range"),
        (["fill", "a [MASK:1-2]", "--kernel", "block"], "keeps lengths"),
        (["fill", "a [MASK:1-2]", "--kernel", "resize:gaps=1-2"], "leave them away"),
        (["fill", "a [MASK:1-2]", "--energy", "raw"], "no zero"),
        (["fill", "a [MASK:1-2]", "--offset", "1", "--offset-from", "lines.txt"], "got both"),
        (["fill", "a [MASK:1-2]", "--offset-from", "one.txt"], "same length"),
        (["fill", "a [MASK:1-2]", "--offset-from", "none.txt"], "has no lines"),
        (["fill", "a [MASK:1-2]", "--offset", "nan"], "the offset nan is out of range"),
        (["fill", "a [MASK]", "--start", "greddy"], "did you mean 'greedy'"),
        (["fill", "a [MASK:40-60]"], "more than the model's limit"),
        (["sample", "--template", "a [MASK:1-2]"], "is for `maskropolis fill`"),
        (["sample", "--offset-from", "lines.txt"], "of --kernel resize"),
    ],
)
def test_bad_input(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("the cat\nthe cat sat\n")
    Path("one.txt").write_text("the cat\n")
    Path("none.txt").write_text("")
    _, error = invoke(*arguments, "-m", str(tiny_folder))
    assert isinstance(error, InputError) and message in str(error), error


def test_unknown_context_is_counted_once_over_all_lengths(tiny_bert: Any) -> None:
    result = maskropolis.fill("the € [MASK:1-3]", tiny_bert, samples=3, progress=False, burn_in=1)
    assert result.notices == ["1 of the tokens around the gaps are unknown to the model's vocabulary"]


@pytest.mark.parametrize("mask", ["<mask>", "<MASK>"])
def test_the_mask_of_another_model_is_refused(tiny_bert: Any, mask: str) -> None:
    for text in (f"the {mask} sat", f"the {mask} [MASK:2]"):
        with pytest.raises(InputError, match=rf"holds {mask}, which marks no gap for this model; write \[MASK\]"):
            maskropolis.fill(text, tiny_bert)


@pytest.mark.parametrize(
    ("template", "settings", "message"),
    [
        (None, {}, "the text is of type NoneType; expected text"),
        ("a [MASK]", {"samples": "x"}, "samples 'x' is out of range"),
        ("a [MASK]", {"samples": 10**6, "best_of": 10**6}, "samples x best-of 1000000000000 is out of range"),
    ],
)
def test_wrong_types_and_far_too_many(tiny_bert: Any, template: Any, settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        maskropolis.fill(template, tiny_bert, **settings)
