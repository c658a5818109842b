"""Gaps in prose: how they are written, how long they may be, and how what fills them is joined to what stands around.

    [MASK]        one token
    [MASK:3]      three tokens
    [MASK:2-4]    two to four tokens

Gaps with nothing but white space between them are one gap, as long as they are together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from maskropolis.errors import InputError
from maskropolis.models.text.codec import LITERAL_MASK, TextCodec, require_own_masks, shorten

_GAP = re.compile(r"\[MASK(?::([^\]]*))?\]")
_NEIGHBOURS = 4  # tokens of context that decide whether a space is written


@dataclass(frozen=True)
class Gap:
    """Bounds of its length in tokens."""

    shortest: int
    longest: int

    def __str__(self) -> str:
        return str(self.longest) if self.shortest == self.longest else f"{self.shortest}-{self.longest}"


@dataclass(frozen=True)
class GappedText:
    """`prose` around the gaps: one piece more than there are gaps, the first and last may be empty."""

    prose: tuple[str, ...]
    gaps: tuple[Gap, ...]

    @classmethod
    def parse(cls, text: str, mask: str = LITERAL_MASK) -> GappedText:
        """`mask` is the model's own way to write one token. Raises `InputError`."""
        require_own_masks(text, mask, "the text")
        text = text.replace(mask, LITERAL_MASK)
        pieces: list[str] = []
        gaps: list[Gap] = []
        start = 0
        for match in _GAP.finditer(text):
            between, gap = text[start : match.start()], _gap(match)
            if gaps and not between.strip():
                gaps[-1] = Gap(gaps[-1].shortest + gap.shortest, gaps[-1].longest + gap.longest)
            else:
                pieces.append(between)
                gaps.append(gap)
            start = match.end()
        if not gaps:
            raise InputError(f"nothing to fill: expected [MASK], [MASK:3] or [MASK:2-4] in {shorten(text)!r}")
        return cls((*pieces, text[start:]), tuple(gaps))

    @property
    def bounds(self) -> str:
        """As the kernel resize takes them, e.g. `2-4/3`."""
        return "/".join(map(str, self.gaps))

    @property
    def variable(self) -> bool:
        return any(gap.shortest < gap.longest for gap in self.gaps)

    def lengths(self, count: int) -> list[tuple[int, ...]]:
        """`count` choices of lengths, spread evenly over all combinations."""
        sizes = [gap.longest - gap.shortest + 1 for gap in self.gaps]
        total = math.prod(sizes)
        chosen = []
        for number in range(count):
            index, lengths = (number * total) // count if count < total else number % total, []
            for gap, size in zip(self.gaps, sizes, strict=True):
                lengths.append(gap.shortest + index % size)
                index //= size
            chosen.append(tuple(lengths))
        return chosen

    def template(self, lengths: Sequence[int]) -> str:
        """The text with as many `[MASK]` in each gap."""
        filled = [part + LITERAL_MASK * length for part, length in zip(self.prose, lengths, strict=False)]
        return "".join([*filled, self.prose[-1]])


def _gap(match: re.Match[str]) -> Gap:
    if match[1] is None:
        return Gap(1, 1)
    numbers = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", match[1])
    if numbers is None:
        raise InputError(f"the gap {match[0]} is malformed; expected [MASK], [MASK:3] or [MASK:2-4]")
    gap = Gap(int(numbers[1]), int(numbers[2] or numbers[1]))
    if not 1 <= gap.shortest <= gap.longest:
        raise InputError(f"the gap {match[0]} is out of range; expected at least one token, the smaller number first")
    return gap


@dataclass(frozen=True)
class Span:
    """What fills a gap: characters `start` to `stop` of the whole text, and how many tokens they are."""

    start: int
    stop: int
    text: str
    tokens: int


def joined(codec: TextCodec, gapped: GappedText, ids: Sequence[int], free: Sequence[bool]) -> tuple[str, list[Span]]:
    """The user's own prose with the fillings in it, word pieces joined to their words, and where the fillings are.

    `ids` and `free` are those of one row without padding; its runs of free tokens are the gaps.
    """
    text, spans = gapped.prose[0], []
    for (start, stop), after in zip(_runs(free), gapped.prose[1:], strict=True):
        before = _text(codec, ids[max(0, start - _NEIGHBOURS) : start])
        through = _text(codec, ids[max(0, start - _NEIGHBOURS) : stop])
        filling = through[len(before) :] if through.startswith(before) else f" {_text(codec, ids[start:stop])}"
        if text.strip():
            text = _spaced(text.rstrip(), text[len(text.rstrip()) :], filling.strip(), filling[:1].isspace())
        filling = filling.strip()
        spans.append(Span(len(text), len(text) + len(filling), filling, stop - start))
        text += filling
        alone = _text(codec, ids[start:stop])
        behind = _text(codec, ids[start : stop + _NEIGHBOURS])
        wanted = behind.startswith(alone) and behind[len(alone) :][:1].isspace()
        own = after[: len(after) - len(after.lstrip())]
        text = _spaced(text, own, after.lstrip(), wanted) + after.lstrip() if after.strip() else text + after
    return text, spans


def _spaced(left: str, own: str, right: str, wanted: bool) -> str:
    """`left` and what stands between it and `right`: nothing if the tokenizer joins them, else the user's `own` white
    space; where there is none, a blank between letters or digits."""
    if not wanted:
        return left
    return left + (own or (" " if left[-1:].isalnum() and right[:1].isalnum() else ""))


def _runs(free: Sequence[bool]) -> list[tuple[int, int]]:
    edges = [0, *map(int, free), 0]
    starts = [t for t in range(len(free)) if edges[t + 1] and not edges[t]]
    stops = [t + 1 for t in range(len(free)) if edges[t + 1] and not edges[t + 2]]
    return list(zip(starts, stops, strict=True))


def _text(codec: TextCodec, ids: Sequence[int]) -> str:
    return codec.decode(codec.pad([list(ids)], [[False] * len(ids)]))[0] if ids else ""
