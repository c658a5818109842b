"""A user's own Python function from a list of texts to a list of energies."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from maskropolis.errors import InputError
from maskropolis.sequences import Sequences
from maskropolis.targets.experts import FUNCTION


@dataclass(frozen=True)
class Function:
    """`call(texts)` returns one number a text: lower is better, +inf forbids. The same text must get the same number.

    Nothing is known about the sign of its energies, so it is asked before experts that may be spared.
    """

    cost: ClassVar[int] = FUNCTION
    bounded: ClassVar[bool] = False
    repels: ClassVar[bool] = True
    name: str
    call: Callable[[list[str]], Any]

    def energy(self, sequences: Sequences, texts: Sequence[str]) -> Tensor:
        try:
            found = torch.as_tensor(self.call(list(texts)), dtype=torch.float64)
        except (Exception, SystemExit) as error:
            raise InputError(f"the expert '{self.name}' failed: {type(error).__name__}: {error}") from None
        if found.shape != (len(texts),):
            raise InputError(
                f"the expert '{self.name}' returned shape {list(found.shape)} for {len(texts)} texts; "
                f"expected one number a text, [{len(texts)}]"
            )
        bad = found.isnan() | (found == -torch.inf)
        if bool(bad.any()):
            at = int(bad.nonzero()[0, 0])
            raise InputError(f"the expert '{self.name}' returned {float(found[at])} for {texts[at][:60]!r}")
        return found.to(sequences.device)


def function(module: str, name: str) -> Function:
    """The function `name` of a module, of an installed one or a file in the current folder.

    Raises `InputError`, whatever the module does when it is imported.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot import '{name}' from '{module}': {error}") from None
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot import '{name}' from '{module}': {type(error).__name__}: {error}") from None
    if not callable(found):
        raise InputError(f"'{module}:{name}' is of type {type(found).__name__}; expected a function of a list of texts")
    return Function(f"python:{module}:{name}", found)
