"""Kernels by name: `block:k=4,contiguous=yes,top_k=50` builds the kernel that it describes."""

from __future__ import annotations

import types
import typing
from dataclasses import fields
from typing import Any

from maskropolis.errors import InputError, unknown_name
from maskropolis.kernels.base import KERNELS, Kernel
from maskropolis.kernels.proposal import MaskedProposal
from maskropolis.targets.energy import Energy

_OF_PROPOSAL = {"proposal_temperature": ("temperature", float), "top_k": ("top_k", int)}


def build_kernel(specification: str, energy: Energy, **settings: Any) -> Kernel:
    """The kernel called `name` or `name:key=value,…`. Settings given as arguments count where the text is silent.

    Settings whose value is None are ignored. Raises `InputError` for unknown names and keys (with the nearest one) and
    for values out of range.
    """
    name, _, text = specification.partition(":")
    if name not in KERNELS:
        raise unknown_name("kernel", name, KERNELS)
    kind = KERNELS[name]
    given = {key: value for key, value in settings.items() if value is not None} | _parse(text)
    types_ = typing.get_type_hints(kind)
    known = {item.name for item in fields(kind)} - {"energy", "proposal"}
    arguments: dict[str, Any] = {"energy": energy}
    of_proposal: dict[str, Any] = {}
    for key, value in given.items():
        if key in _OF_PROPOSAL and "proposal" in types_:
            target, wanted = _OF_PROPOSAL[key]
            of_proposal[target] = _convert(key, value, wanted)
        elif key in known:
            arguments[key] = _convert(key, value, types_[key])
        else:
            takes = known | (set(_OF_PROPOSAL) if "proposal" in types_ else set())
            raise unknown_name(f"setting of kernel '{name}':", key, takes)
    if of_proposal:
        arguments["proposal"] = MaskedProposal(**of_proposal)
    kernel: Kernel = kind(**arguments)
    return kernel


def _parse(text: str) -> dict[str, str]:
    settings = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"kernel setting '{part}' has no value; expected key=value, e.g. block:k=4")
        settings[key.strip().replace("-", "_")] = value.strip()
    return settings


def _convert(key: str, value: Any, wanted: Any) -> Any:
    """`value`, a string, as the annotated type of a field (bool, int, float, str, or one of these | None)."""
    if isinstance(wanted, types.UnionType):
        wanted = next(kind for kind in typing.get_args(wanted) if kind is not type(None))
    if not isinstance(value, str):
        return value
    try:
        if wanted is bool:
            return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}[value.lower()]
        return wanted(value)
    except (ValueError, KeyError):
        kind = {bool: "yes or no", int: "a whole number", float: "a number"}.get(wanted, "a value")
        raise InputError(f"kernel setting {key}={value} is malformed; expected {kind}") from None
