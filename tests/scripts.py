"""The commands under `experiments/` as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"


def command(folder: str) -> Any:
    """`run.py` of an experiment; its neighbours can be imported afterwards."""
    name = f"experiments_{folder}_run"
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, EXPERIMENTS / folder / "run.py")
        assert found is not None and found.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]
