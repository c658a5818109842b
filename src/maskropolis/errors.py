"""The errors a user can meet: each message is one line that says what was wrong, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class MaskropolisError(Exception):
    """Something the user can mend. The command line prints the message as one line and exits with code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))


class ModelError(MaskropolisError):
    """A model cannot be found, is not a masked language model, or may not be loaded safely."""


class InputError(MaskropolisError):
    """A text, file, template or option value is malformed or out of range."""


class NumericalError(MaskropolisError):
    """The model returned NaN or infinite numbers. `chains` says for which rows of the batch of chains."""

    def __init__(self, message: str, chains: Sequence[int] = ()) -> None:
        where = f" (chain {', '.join(map(str, chains[:5]))}{', …' if len(chains) > 5 else ''})" if chains else ""
        super().__init__(message + where)
        self.plain, self.chains = message, tuple(chains)


class RunError(MaskropolisError):
    """A run folder is locked, damaged, or belongs to another configuration."""


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out; torch says so by a `RuntimeError`."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower() if isinstance(error, RuntimeError) else ""
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An `InputError` for a name that does not exist, with the nearest known name suggested."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} '{name}'; {hint}")
