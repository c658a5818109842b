"""Text as token ids on disk: tokenised once, streaming, then memory-mapped; never whole in memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from maskropolis.errors import InputError
from maskropolis.training.checkpoint import disk_error
from maskropolis.training.data.sentences import is_balanced, split_sentences

_LINES = 2000  # paragraphs tokenised at a time


@dataclass(frozen=True)
class Corpus:
    """Token ids of many paragraphs in one stream, a separator after each.

    `ids` [N]: the stream. `starts` [N] uint8: 1 where a word begins. `units` [U, 2] int64: (first, length) of each
    sentence, or of each paragraph if sentences were not asked for. All three are memory maps.
    """

    ids: np.ndarray
    starts: np.ndarray
    units: np.ndarray
    paragraphs: int

    def __len__(self) -> int:
        return len(self.ids)

    def unigram_counts(self, vocabulary_size: int) -> np.ndarray:
        """How often each token occurs, [V] int64."""
        counts = np.zeros(vocabulary_size, dtype=np.int64)
        for first in range(0, len(self.ids), 1 << 20):
            counts += np.bincount(self.ids[first : first + (1 << 20)], minlength=vocabulary_size)
        return counts


def separator(tokenizer: Any) -> int | None:
    """The token that ends a text: [SEP], else </s>, else none."""
    return tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id


def opener(tokenizer: Any) -> int | None:
    """The token that begins a text: [CLS], else <s>, else none."""
    return tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id


def build(lines: Iterable[str], tokenizer: Any, folder: Path, sentences: bool = True) -> Corpus:
    """Tokenise `lines` into `folder` (replaced if there) and open it.

    Raises `InputError` if there is no text, `RunError` if the disk is full.
    """
    rough = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    shutil.rmtree(rough, ignore_errors=True)
    rough.mkdir(parents=True)
    try:
        paragraphs, units = _write(lines, tokenizer, rough, sentences)
        if not paragraphs:
            raise InputError("no text: every line is empty; expected one paragraph a line")
        head = {"paragraphs": paragraphs, "units": units, "dtype": _dtype(tokenizer).name}
        (rough / "corpus.json").write_text(json.dumps(head), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        rough.rename(folder)
    except OSError as error:
        raise disk_error(folder, error) from None
    finally:
        shutil.rmtree(rough, ignore_errors=True)
    return load(folder)


def load(folder: Path) -> Corpus:
    """Open what `build` wrote."""
    head = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    ids = np.memmap(folder / "ids.bin", dtype=head["dtype"], mode="r")
    starts = np.memmap(folder / "starts.bin", dtype=np.uint8, mode="r")
    units = (
        np.memmap(folder / "units.bin", dtype=np.int64, mode="r").reshape(-1, 2)
        if head["units"]
        else np.zeros((0, 2), dtype=np.int64)
    )
    return Corpus(ids, starts, units, head["paragraphs"])


def fingerprint(files: Iterable[Path], tokenizer: Any, *more: Any) -> str:
    """A hash of the text, the tokenizer and the options: two equal ones mean equal token ids."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    backend = getattr(tokenizer, "backend_tokenizer", None)
    digest.update((backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab()))).encode())
    digest.update(repr(more).encode())
    return digest.hexdigest()


def _dtype(tokenizer: Any) -> np.dtype:
    return np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)


def _write(lines: Iterable[str], tokenizer: Any, folder: Path, sentences: bool) -> tuple[int, int]:
    end = separator(tokenizer)
    written = paragraphs = count = 0
    with (
        (folder / "ids.bin").open("wb") as id_file,
        (folder / "starts.bin").open("wb") as start_file,
        (folder / "units.bin").open("wb") as unit_file,
    ):
        for line, encoding in _encoded(lines, tokenizer):
            if not encoding.ids:
                continue
            ids = [*encoding.ids, *([] if end is None else [end])]
            starts = _word_starts(encoding.word_ids)
            units = _units(line, encoding, sentences)
            units[:, 0] += written
            id_file.write(np.asarray(ids, dtype=_dtype(tokenizer)).tobytes())
            start_file.write(np.asarray(starts + [1] * (end is not None), dtype=np.uint8).tobytes())
            unit_file.write(units.tobytes())
            written, paragraphs, count = written + len(ids), paragraphs + 1, count + len(units)
    return paragraphs, count


def _encoded(lines: Iterable[str], tokenizer: Any) -> Iterator[tuple[str, Any]]:
    """Each paragraph with its encoding (ids, offsets, word numbers), a few thousand in memory at a time."""
    remaining = iter(lines)
    while block := list(islice(remaining, _LINES)):
        encoded = tokenizer(block, add_special_tokens=False, return_attention_mask=False, verbose=False)
        yield from zip(block, encoded.encodings, strict=True)


def _word_starts(words: list[int | None]) -> list[int]:
    return [int(word is None or i == 0 or word != words[i - 1]) for i, word in enumerate(words)]


def _units(line: str, encoding: Any, sentences: bool) -> np.ndarray:
    """(first token, length) of what can stand alone in this paragraph, [U, 2] int64."""
    if not sentences:
        return np.array([[0, len(encoding.ids)]], dtype=np.int64)
    spans = [span for span in split_sentences(line) if is_balanced(line[span.start : span.end])]
    begins = np.array([begin for begin, _ in encoding.offsets])
    first = np.searchsorted(begins, [span.start for span in spans])
    last = np.searchsorted(begins, [span.end for span in spans])
    units = np.stack([first, last - first], axis=1).astype(np.int64)
    return units[units[:, 1] > 0]
