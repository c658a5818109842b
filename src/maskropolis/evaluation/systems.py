"""The sets of sentences that are compared: from a text file, JSONL, CSV, Parquet or a run folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from maskropolis.errors import InputError
from maskropolis.records import Fields, read_records
from maskropolis.runs.folder import open_run


@dataclass(frozen=True)
class System:
    """N sentences from one source.

    Attributes:
        name: how tables call it.
        texts: [N].
        groups: [N] sentences of the same group depend on each other: states of one chain.
        signature: how they were made, where the source says so.
    """

    name: str
    texts: tuple[str, ...]
    groups: tuple[int, ...]
    signature: str = ""

    def __post_init__(self) -> None:
        if not self.texts:
            raise InputError(f"'{self.name}' holds no sentences; expected at least one")

    @classmethod
    def of(cls, name: str, texts: Sequence[str]) -> System:
        """Independent sentences."""
        return cls(name, tuple(texts), tuple(range(len(texts))))

    @property
    def digest(self) -> str:
        """SHA-256 of the sentences in order."""
        return hashlib.sha256("\n".join(self.texts).encode("utf-8", "surrogatepass")).hexdigest()

    def some(self, count: int, seed: int) -> System:
        """`count` sentences drawn without replacement, in order. Raises `InputError` if there are fewer."""
        if count < 1:
            raise InputError(f"{count} sentences are too few; expected at least 1")
        if count > len(self.texts):
            raise InputError(f"'{self.name}' holds {len(self.texts)} sentences; expected at least {count}")
        chosen = sorted(np.random.default_rng(seed).permutation(len(self.texts))[:count].tolist())
        return replace(self, texts=tuple(self.texts[i] for i in chosen), groups=tuple(self.groups[i] for i in chosen))


def read_systems(
    sources: Sequence[str], fields: Fields | None = None, format: str | None = None, last: bool = False
) -> list[System]:
    """One system for each source, named by file or folder, by the whole path where two would be called the same.

    With `last`, of a run folder only the last kept state of each chain. Records with a whole number `chain` are grouped
    by it. Raises `InputError` or `RunError` for what cannot be read.
    """
    short = [Path(source).stem if source != "-" else "standard input" for source in sources]
    if len(set(sources)) < len(sources):
        twice = next(source for source in sources if list(sources).count(source) > 1)
        raise InputError(f"'{twice}' is named twice; expected different samples")
    names = [name if short.count(name) == 1 else source for name, source in zip(short, sources, strict=True)]
    return [_read(source, name, fields or Fields(), format, last) for source, name in zip(sources, names, strict=True)]


def _read(source: str, name: str, fields: Fields, format: str | None, last: bool) -> System:
    if source != "-" and Path(source).is_dir():
        return _of_run(source, name, fields.skip_empty, last)
    records = list(read_records(source, fields, format))
    chains = [record.other.get("chain") for record in records]
    groups = [chain for chain in chains if isinstance(chain, int)]
    if len(groups) < len(records):
        groups = list(range(len(records)))
    return System(name, tuple(record.text for record in records), tuple(groups))


def _of_run(source: str, name: str, skip_empty: bool, last: bool) -> System:
    run = open_run(source)
    kept = run.latest() if last else list(run)
    blank = next((record for record in kept if not record["text"].strip()), None)
    if blank is not None and not skip_empty:
        raise InputError(
            f"'{source}' holds an empty sentence (chain {blank['chain']}, step {blank['step']}); "
            "--skip-empty passes over such states"
        )
    kept = [record for record in kept if record["text"].strip()]
    return System(name, tuple(r["text"] for r in kept), tuple(r["chain"] for r in kept), run.signature)
