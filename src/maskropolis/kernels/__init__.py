"""How to move: Markov kernels, one a file. Importing this package fills the registry with every kernel in it."""

from __future__ import annotations

import importlib
import pkgutil

from maskropolis.kernels.base import KERNELS, Info, Kernel, State, register

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

__all__ = ["KERNELS", "Info", "Kernel", "State", "register"]
