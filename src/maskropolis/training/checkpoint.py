"""The complete state of a run in one safetensors file, replaced atomically: killed at any moment, a run has the old
state or the new one, never half of either."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from maskropolis.errors import RunError
from maskropolis.records.files import write_with


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name, tied ones once."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            unique[name] = tensor
    return unique


def save(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer | None, state: dict[str, Any]) -> None:
    """Write weights, moments and `state` (JSON) to `path`. Raises `RunError` if the disk is full."""
    tensors = {f"model/{name}": tensor.detach().contiguous() for name, tensor in weights(model).items()}
    if optimiser is not None:
        tensors |= _moments(model, optimiser)
    try:
        write_with(path, lambda partial: save_file(tensors, partial, metadata={"state": json.dumps(state)}))
    except (OSError, SafetensorError) as error:
        raise disk_error(path, error) from None


def disk_error(path: Path, error: Exception) -> RunError:
    """The one line for a file that could not be written."""
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    if full:
        return RunError(
            f"the disk is full: '{path}' could not be written; what was saved before is intact: free some space "
            "and go on with --resume"
        )
    return RunError(f"'{path}' could not be written: {error}")


def load(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer | None = None) -> dict[str, Any]:
    """Put a saved state back, bit for bit, and return its JSON part. Raises `RunError` if it does not fit."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            state = json.loads(file.metadata()["state"])
    except (OSError, SafetensorError, TypeError, KeyError, ValueError) as error:
        raise RunError(f"the checkpoint '{path}' is damaged: {error}") from None
    own = weights(model)
    saved = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
    if own.keys() != saved.keys() or any(own[name].shape != saved[name].shape for name in own):
        raise RunError(f"the checkpoint '{path}' belongs to another model")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved[name])
    if optimiser is not None:
        _restore_moments(model, optimiser, tensors)
    return state


def _moments(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"optimiser/{names[id(parameter)]}/{key}": value.detach().contiguous()
        for parameter, entry in optimiser.state.items()
        for key, value in entry.items()
        if isinstance(value, Tensor)
    }


def _restore_moments(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    optimiser.state.clear()
    for path, tensor in tensors.items():
        if path.startswith("optimiser/"):
            name, key = path.removeprefix("optimiser/").rsplit("/", 1)
            parameter = parameters[name]
            optimiser.state[parameter][key] = tensor.to(parameter.device) if tensor.ndim else tensor.clone()
