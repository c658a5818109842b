"""Kernels by name: `block:k=4,contiguous=yes,top_k=50` builds the kernel that it describes.

Kernels inside kernels stand in parentheses: `delayed:kernel=path(k=4),scale=0.8`, `mixture:single-site=2,block(k=4)=1`.
The text of a signature, `block(k=4)`, is understood as well.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from maskropolis.errors import InputError, unknown_name
from maskropolis.kernels.base import KERNELS, Kernel
from maskropolis.kernels.proposal import MaskedProposal
from maskropolis.targets.energy import Energy
from maskropolis.targets.surrogate import surrogate_by_name

_OF_PROPOSAL = {"proposal_temperature": ("temperature", float), "top_k": ("top_k", int)}
_NOT_SET = {"energy", "parts", "weights"}


def build_kernel(specification: str, energy: Energy, **settings: Any) -> Kernel:
    """The kernel called `name` or `name:key=value,…`. Settings given as arguments count where the text is silent.

    Settings whose value is None are ignored; settings that a kernel does not have go to the kernel inside it, if there
    is one. Raises `InputError` for unknown names and keys (with the nearest one) and for values out of range.
    """
    name, text = _head(specification)
    if name not in KERNELS:
        raise unknown_name("kernel", name, KERNELS)
    kind = KERNELS[name]
    given = {key: value for key, value in settings.items() if value is not None} | dict(_parse(text))
    if hasattr(kind, "from_parts"):
        return _of_parts(kind, given, energy)
    arguments, left = _arguments(kind, given)
    if "kernel" in arguments or left:
        if "kernel" not in {item.name for item in fields(kind)}:
            raise unknown_name(f"setting of kernel '{name}':", next(iter(left)), _settings(kind))
        default = next(item for item in fields(kind) if item.name == "kernel").default_factory
        inner = arguments.get("kernel") or default().signature()  # type: ignore[operator]
        arguments["kernel"] = build_kernel(inner, energy, **left) if isinstance(inner, str) else inner
    kernel: Kernel = kind(energy=energy, **arguments)
    return kernel


def _of_parts(kind: Any, given: dict[str, Any], energy: Energy) -> Kernel:
    """A mixture: keys that are not settings are kernels, their values weights."""
    own = {key: value for key, value in given.items() if key in _settings(kind)}
    arguments, _ = _arguments(kind, own)
    parts = [
        (build_kernel(key, energy), _convert(f"weight of {key}", value, float))
        for key, value in given.items()
        if key not in own
    ]
    kernel: Kernel = kind.from_parts(energy, parts, **arguments)
    return kernel


def _settings(kind: Any) -> set[str]:
    """Names of what can be set."""
    names = {item.name for item in fields(kind)}
    return (names - _NOT_SET) | (set(_OF_PROPOSAL) if "proposal" in names else set())


def _arguments(kind: Any, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of the class `kind`, converted to the types of its fields; and the settings that it does not have."""
    wanted, known = typing.get_type_hints(kind), _settings(kind)
    arguments: dict[str, Any] = {}
    of_proposal: dict[str, Any] = {}
    for key in [key for key in map(_underscored, given) if key in known]:
        value = given.get(key, given.get(key.replace("_", "-")))
        if key in _OF_PROPOSAL:
            target, number = _OF_PROPOSAL[key]
            of_proposal[target] = _convert(key, value, number)
        elif key == "kernel":
            arguments[key] = value
        elif key == "surrogate":
            arguments[key] = surrogate_by_name(value) if isinstance(value, str) else value
        else:
            arguments[key] = _convert(key, value, wanted[key])
    if of_proposal:
        arguments["proposal"] = MaskedProposal(**of_proposal)
    return arguments, {key: value for key, value in given.items() if _underscored(key) not in known}


def _head(specification: str) -> tuple[str, str]:
    """`name:settings` or `name(settings)` divided."""
    text = specification.strip()
    if text.endswith(")") and "(" in text and ":" not in text.partition("(")[0]:
        name, _, inside = text.partition("(")
        return name.strip(), inside[:-1]
    name, _, inside = text.partition(":")
    return name.strip(), inside


def _parse(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, (piece.strip() for piece in _split(text, ","))):
        key, *value = _split(part, "=")
        if not value:
            raise InputError(f"kernel setting '{part}' has no value; expected key=value, e.g. block:k=4")
        yield key.strip(), "=".join(value).strip()


def _underscored(key: str) -> str:
    return key.replace("-", "_")


def _split(text: str, mark: str) -> list[str]:
    """`text` divided at every `mark` outside parentheses. Raises `InputError` if parentheses do not match."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == mark and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    if depth:
        raise InputError(f"parentheses in '{text}' do not match; expected e.g. kernel=path(k=4)")
    return pieces


def _convert(key: str, value: Any, wanted: Any) -> Any:
    """`value`, a string, as the annotated type of a field: bool, int, float, str, numbers as 1/1.5/2, or one | None."""
    if isinstance(wanted, types.UnionType):
        wanted = next(kind for kind in typing.get_args(wanted) if kind is not type(None))
    if not isinstance(value, str):
        return value
    try:
        if wanted is bool:
            return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}[value.lower()]
        if typing.get_origin(wanted) is tuple:
            return tuple(float(number) for number in value.strip("()").replace(",", "/").split("/") if number.strip())
        return wanted(value)
    except (ValueError, KeyError, TypeError):
        kinds = {bool: "yes or no", int: "a whole number", float: "a number"}
        kind = kinds.get(wanted, "numbers such as 1/1.5/2")
        raise InputError(f"kernel setting {key}={value} is malformed; expected {kind}") from None
