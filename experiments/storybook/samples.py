"""Ten sentences drawn at random from storybook by the chains of this package: the first ten, none left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SAMPLING = {"length": 12, "chains": 10, "seed": 0}


def samples(folder: Path) -> dict[str, Any]:
    """The settings and the texts, one from the end of each chain."""
    from maskropolis import load, sample

    return {"settings": SAMPLING, "texts": list(sample(load(str(folder)), progress=False, **SAMPLING).texts)}
