"""What the configuration of a run says of how it moved: its kernel, and whether there is a target to arrive at."""

from __future__ import annotations

from typing import Any

from maskropolis.kernels.base import Kernel
from maskropolis.kernels.specification import build_kernel
from maskropolis.targets.energy import energy_by_name


def kernel_of(config: dict[str, Any]) -> Kernel:
    """The kernel of a run, without the experts and constraints of its target. Raises `InputError`."""
    return build_kernel(config["kernel"], energy_by_name(config["energy"]))


def target_of(config: dict[str, Any]) -> str:
    """`exact`, `annealed` where τ changes over the run, or `none` for a kernel without a target."""
    if not kernel_of(config).exact:
        return "none"
    return "exact" if config["final_temperature"] in (None, config["temperature"]) else "annealed"
