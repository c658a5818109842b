"""The length-changing kernel on the bundled model visits the lengths as declared."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import maskropolis

FOLDER = Path(__file__).parents[2] / "experiments/lengths"


def script() -> Any:
    """The command as a module."""
    found = importlib.util.spec_from_file_location("experiments_lengths_run", FOLDER / "run.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def agrees(result: dict[str, list[float]]) -> bool:
    """Each share within four standard errors of independent chains, which are small enough to tell."""
    pairs = zip(result["wanted"], result["found"], result["error"], strict=True)
    return all(abs(found - wanted) < 4 * error < 0.08 for wanted, found, error in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["uniform", "poisson"])
def test_a_chain_visits_the_declared_lengths(prior: str) -> None:
    command = script()
    result = command.measure(*command.narrowed(maskropolis.load(device="cpu")), command.PRIORS[prior])
    assert result["texts"] == 16 + 16**2 + 16**3
    assert agrees(result) and min(result["wanted"]) > 0.02


def test_the_committed_results_agree() -> None:
    results = json.loads((FOLDER / "results.json").read_text())
    assert agrees(results["uniform"]) and agrees(results["poisson"])
    assert not agrees({**results["uniform"], "wanted": results["poisson"]["wanted"][::-1]})
