"""Masked conditionals: what a model must do, and the models that do it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskropolis.errors import InputError, ModelError, unknown_name

if TYPE_CHECKING:
    from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM

BUNDLED = "storybook"


def load(name: str | Path | None = None, *, token_budget: int | None = None, **options: Any) -> HuggingFaceMaskedLM:
    """A masked language model by hub name or local folder; without a name, the English model of the package.

    `causal:NAME[,mask=TOKEN][,shift]` is a causal architecture trained as a masked diffusion model: LLaDA, Dream.
    `options` are those of `HuggingFaceMaskedLM.from_pretrained` (tokenizer, device, dtype, allow_pickle,
    trust_remote_code, revision, format, compile). `token_budget` is the number of token positions in one forward pass:
    it changes speed and memory, never a result. Raises `ModelError` in one line for whatever is wrong with the model.
    """
    from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM

    if token_budget is not None and (not isinstance(token_budget, Integral) or token_budget < 1):
        raise InputError(f"a token budget of {token_budget!r} is out of range; expected a whole number, at least 1")
    if name is not None and not isinstance(name, str | Path):
        raise ModelError(f"the model is of type {type(name).__name__}; expected a name, a folder or a loaded model")
    _require_options(options)
    name = str(name) if isinstance(name, Path) else name
    if name is not None and name.startswith("causal:"):
        from maskropolis.models.huggingface.causal_as_masked import CausalAsMasked

        model: HuggingFaceMaskedLM = CausalAsMasked.named(name.removeprefix("causal:"), **options)
    elif name is not None and name != BUNDLED:
        model = HuggingFaceMaskedLM.from_pretrained(name, **options)
    else:
        model = HuggingFaceMaskedLM.from_pretrained(_bundled(), **options)
        model.name = BUNDLED
    if token_budget is not None:
        model.budget.tokens = token_budget
    return model


def opened(model: Any) -> Any:
    """A loaded model as it is; one named, or None, loaded with the defaults. Raises `ModelError`."""
    return model if hasattr(model, "logits") and hasattr(model, "codec") else load(model)


def _require_options(options: Iterable[str]) -> None:
    """Raises `InputError`, naming the nearest option, for one that `load` does not have."""
    from maskropolis.models.huggingface.loading import Options

    for name in options:
        if name not in Options.__dataclass_fields__:
            raise unknown_name("option", name, (*Options.__dataclass_fields__, "token_budget"))


def _bundled() -> str:
    """The folder of the model inside the package."""
    if importlib.util.find_spec("maskropolis.models.storybook") is None:
        raise ModelError("this version carries no model of its own; name one with --model NAME_OR_FOLDER")
    module = importlib.import_module("maskropolis.models.storybook")
    return str(module.storybook_path())
