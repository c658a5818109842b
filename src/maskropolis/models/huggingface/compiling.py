"""`--compile`: the body of a network through torch.compile, or one line that says why it cannot be."""

from __future__ import annotations

from typing import Any

import torch

from maskropolis.errors import ModelError


def compile_body(model: Any) -> None:
    """Compile the body of a `HuggingFaceMaskedLM` for all shapes at once, and try it: that takes up to some minutes.

    It takes the place of `cpu_products`, which torch.compile does without. Raises `ModelError` if the network does not
    divide into body and head, does not compile, gives other logits, or there is no compiler.
    """
    if model.parts is None:
        raise ModelError(f"'{model.name}' does not divide into body and output layer; leave out --compile")
    row = model.example()
    at = torch.arange(row.width, device=row.device)[None]
    expected = model.logits(row, at)
    model.use_body(lambda body: torch.compile(body, dynamic=True))
    try:
        found = model.logits(row, at)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).split("\n")[0][:200]
        raise ModelError(f"'{model.name}' could not be compiled ({reason}); leave out --compile") from None
    tolerance = 1e-4 if model.dtype == "float32" else 5e-2
    if not bool((found - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max()))):
        raise ModelError(f"'{model.name}' gives other logits when compiled; leave out --compile")
