"""Rating sheets in and out of files: CSV and a self-contained HTML form out, filled CSV in.

study/key.json                  which sentence is whose; not for raters
      sheets/rater-1.csv        one row a sentence: rater, item, text and an empty column for each question
      sheets/rater-1.html       the same as a form that works offline and saves a CSV of the same columns
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskropolis.errors import InputError
from maskropolis.evaluation.rating.blinding import Design
from maskropolis.terminal import shown

KEY_FILE, SHEET_FOLDER = "key.json", "sheets"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SHOWN = 5


def export(study: Design, folder: Path) -> None:
    """Write sheets and key. Raises `InputError` if the folder holds anything already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"'{folder}' exists and is not an empty folder; name a new one, for answers are not replaced")
    (folder / SHEET_FOLDER).mkdir(parents=True, exist_ok=True)
    for rater in range(1, len(study.orders) + 1):
        sheet = folder / SHEET_FOLDER / f"rater-{rater}"
        sheet.with_suffix(".csv").write_text(to_csv(study, rater), encoding="utf-8-sig", newline="")
        sheet.with_suffix(".html").write_text(to_html(study, rater), encoding="utf-8", errors="replace")
    key = json.dumps(study.to_json(), indent=1, ensure_ascii=False)
    (folder / KEY_FILE).write_text(f"{key}\n", encoding="utf-8", errors="backslashreplace")


def columns(study: Design) -> list[str]:
    return ["rater", "item", "text", *(question.name for question in study.questions)]


def to_csv(study: Design, rater: int) -> str:
    """The empty sheet. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns(study))
    for item in study.sheet(rater):
        text = f"'{item.text}" if item.text.startswith(_FORMULA) else item.text
        shown = text.encode("utf-8", "replace").decode()
        writer.writerow([rater, item.code, shown, *("" for _ in study.questions)])
    return out.getvalue()


def to_html(study: Design, rater: int) -> str:
    """The form: no network, nothing loaded from elsewhere, all text escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("maskropolis", "evaluation/rating"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    here = Path(__file__)
    return environment.get_template("rating.html.jinja").render(
        style=here.with_name("rating.css").read_text(encoding="utf-8"),
        script=here.with_name("rating.js").read_text(encoding="utf-8"),
        rater=rater,
        items=study.sheet(rater),
        questions=study.questions,
        scale=range(1, study.scale + 1),
        study="".join(item.code for item in study.items[:3]),
    )


def read_key(path: str) -> Design:
    """The key, from its file or from the folder of the study. Raises `InputError`."""
    file = Path(path) / KEY_FILE if Path(path).is_dir() else Path(path)
    try:
        return Design.from_json(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"cannot read the key '{file}': {error.strerror}") from None
    except ValueError:
        raise InputError(f"'{file}' is not JSON; expected key.json as `maskropolis rate export` wrote it") from None


@dataclass(frozen=True)
class Answers:
    """A complete sheet: `values[question][code]` is the answer of this rater."""

    rater: int
    sheet: str
    values: dict[str, dict[str, int]]


def read_answers(files: Sequence[str], study: Design) -> list[Answers]:
    """The sheets in order of raters, every answer checked.

    Raises `InputError` that names each sheet with missing or out-of-range answers, or of another study, and a rater who
    answered twice.
    """
    problems: list[str] = []
    found: dict[int, Answers] = {}
    for file in files:
        sheet = Path(file).name
        answers, wrong = _read_sheet(Path(file), study)
        problems += [f"{sheet}: {one}" for one in wrong]
        if answers is None:
            continue
        if answers.rater in found:
            problems.append(f"{sheet}: rater {answers.rater} answered in {found[answers.rater].sheet} already")
        found[answers.rater] = answers
    if problems:
        raise InputError(f"nothing was imported; {'; '.join(problems)}")
    if not found:
        raise InputError("no sheets were given; expected the filled CSV files of the raters")
    return [found[rater] for rater in sorted(found)]


def _read_sheet(file: Path, study: Design) -> tuple[Answers | None, list[str]]:
    """(answers, if the sheet is of this study at all; what is wrong with it)."""
    rows = _rows(file)
    header, body = [name.strip() for name in rows[0]], rows[1:]
    absent = [name for name in columns(study) if name not in header and name != "text"]
    if absent:
        return None, [f"has no column {', '.join(absent)}; expected {', '.join(columns(study))}"]
    place = {name: header.index(name) for name in header}
    cells = [{name: row[at].strip() if at < len(row) else "" for name, at in place.items()} for row in body]
    raters = {row["rater"] for row in cells}
    if len(raters) != 1 or not _is_rater(next(iter(raters)), study):
        said = ", ".join(sorted(raters)) or "none"
        return None, [f"its rater is {said}; expected one of 1 to {len(study.orders)}, the same in every row"]
    rater = int(next(iter(raters)))
    wrong = _wrong_items([row["item"] for row in cells], study)
    values: dict[str, dict[str, int]] = {question.name: {} for question in study.questions}
    missing, outside = [], []
    for row in cells:
        for name, answers in values.items():
            if not row[name]:
                missing.append(f"{row['item']} {name}")
            elif (answer := _answer(row[name], study.scale)) is None:
                outside.append(f"{row['item']} {name} is {row[name][:20]!r}")
            else:
                answers[row["item"]] = answer
    if missing:
        wrong.append(f"{_plural(len(missing), 'answer')} missing ({_some(missing)})")
    if outside:
        wrong.append(f"{_plural(len(outside), 'answer')} out of range 1 to {study.scale} ({_some(outside)})")
    return Answers(rater, file.name, values), wrong


def _rows(file: Path) -> list[list[str]]:
    """The rows that are not blank, whatever a spreadsheet program chose as the separator."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the sheet '{file}': {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"the sheet '{file}' is not UTF-8; save it as CSV UTF-8") from None
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        raise InputError(f"the sheet '{file}' is malformed CSV: {error}") from None
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise InputError(f"the sheet '{file}' holds no answers; expected a header and one row a sentence")
    return rows


def _is_rater(text: str, study: Design) -> bool:
    return text.isdecimal() and 1 <= int(text) <= len(study.orders)


def _wrong_items(codes: Sequence[str], study: Design) -> list[str]:
    known = {item.code for item in study.items}
    strange = [code for code in codes if code not in known]
    if strange:
        return [f"{_plural(len(strange), 'item')} not of this study ({_some(strange)})"]
    wrong = []
    twice = sorted({code for code in codes if codes.count(code) > 1})
    if twice:
        wrong.append(f"{_plural(len(twice), 'item')} more than once ({_some(twice)})")
    absent = sorted(known - set(codes))
    if absent:
        wrong.append(f"{_plural(len(absent), 'item')} not in the sheet ({_some(absent)})")
    return wrong


def _answer(text: str, scale: int) -> int | None:
    """A whole number from 1 to `scale`, also as 2.0; else None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value in range(1, scale + 1) else None


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _some(said: Iterable[str]) -> str:
    listed = list(said)
    return ", ".join(listed[:_SHOWN]) + (", …" if len(listed) > _SHOWN else "")
