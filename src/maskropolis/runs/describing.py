"""What run.json says of a run: configuration, plan, model and how it was loaded, versions, machine."""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from maskropolis import __version__
from maskropolis.chains.driver import Plan
from maskropolis.chains.packing import pack
from maskropolis.chains.preparation import Prepared
from maskropolis.errors import RunError
from maskropolis.kernels.base import State
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.runs.folder import FORMAT
from maskropolis.targets.schedule import Schedule

_FEWEST, _MOST, _LIGHT = 50, 2000, 1 << 26
_LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "pyarrow")


def describe_run(prepared: Prepared, every: int | None = None) -> dict[str, Any]:
    """The content of run.json at the start. `every`: steps between checkpoints, else `checkpoint_interval`."""
    plan = prepared.plan
    return {
        "format": FORMAT,
        "signature": prepared.signature,
        "status": "running",
        "message": "",
        "stopped_by": None,
        "step": 0,
        "steps": plan.steps,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "config": json.loads(json.dumps(prepared.config.to_json())),
        "plan": {"burn_in": plan.burn_in, "thin": plan.thin, "schedule": asdict(plan.schedule)},
        "checkpoint_every": every or checkpoint_interval(plan.steps, prepared.state),
        "model": describe_model(prepared.model),
        "machine": {"device": str(prepared.model.device), "threads": torch.get_num_threads()},
        "versions": versions(),
    }


def checkpoint_interval(steps: int, state: State) -> int:
    """Steps between checkpoints: about a hundred in a run, fewer where a state is heavy; never told by the clock."""
    weight = sum(tensor.nbytes for tensor in pack(state)[1].values())
    return max(_FEWEST, min(_MOST, steps // 100)) * max(1, weight // _LIGHT)


def describe_model(model: HuggingFaceMaskedLM) -> dict[str, Any]:
    """Its name, its folder if it is one, how it was loaded, its budget, fingerprints of weights and vocabulary."""
    return {
        "name": model.name,
        "folder": str(Path(model.name).resolve()) if Path(model.name).is_dir() else None,
        "loaded_with": model.loaded_with,
        "budget": asdict(model.budget),
        "weights": model.fingerprint(),
        "vocabulary": _vocabulary_fingerprint(model),
    }


def _vocabulary_fingerprint(model: HuggingFaceMaskedLM) -> str:
    pairs = sorted(model.codec.tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def require_same_model(model: HuggingFaceMaskedLM, description: dict[str, Any], folder: Path) -> None:
    """Raises `RunError` unless the weights and the vocabulary are those that the run was started with."""
    now, then = describe_model(model), description["model"]
    for what in ("weights", "vocabulary"):
        if now[what] != then[what]:
            raise RunError(
                f"the {what} behind '{model.name}' changed since '{folder}' was started "
                f"(fingerprint {now[what][:12]}, expected {then[what][:12]}); "
                "name the model that it was started with by --model, or start a new run"
            )


def plan_of(description: dict[str, Any]) -> Plan:
    plan = description["plan"]
    return Plan(description["steps"], plan["burn_in"], plan["thin"], Schedule(**plan["schedule"]))


def versions() -> dict[str, str]:
    return {"maskropolis": __version__, "python": platform.python_version()} | {
        name: version(name) for name in _LIBRARIES
    }


def rounding_notices(description: dict[str, Any], model: HuggingFaceMaskedLM) -> list[str]:
    """What differs from when the run was started and may change the last bits of energies, and so the chain."""
    then, now = description["versions"], versions()
    changed = [f"{name} {then[name]} → {now[name]}" for name in now if then.get(name, now[name]) != now[name]]
    device = description["machine"]["device"]
    if str(model.device) != device:
        changed.append(f"device {device} → {model.device}")
    if not changed:
        return []
    return [f"resumed with {', '.join(changed)}: rounding may differ from that of an uninterrupted run"]
