"""States of any kernel to tensors and back, bit for bit, without pickle.

A state is a tree of dataclasses, dictionaries, lists and numbers with tensors at its leaves. `pack` gives the tree as
JSON with the tensors named by their path in it, so that a kernel may carry whatever it likes.
"""

from __future__ import annotations

import importlib
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from maskropolis.errors import RunError

_KIND, _PACKAGE = "kind", "maskropolis."


def pack(value: Any, path: str = "state") -> tuple[Any, dict[str, Tensor]]:
    """(JSON tree, tensors by path). Raises `TypeError` for a leaf that is neither tensor, number, text nor None."""
    tensors: dict[str, Tensor] = {}

    def walk(node: Any, at: str) -> Any:
        if isinstance(node, Tensor):
            tensors[at] = node.detach().cpu().clone(memory_format=torch.contiguous_format)
            return {_KIND: "tensor", "path": at}
        if is_dataclass(node) and not isinstance(node, type):
            named = {item.name: walk(getattr(node, item.name), f"{at}.{item.name}") for item in fields(node)}
            return {_KIND: f"{type(node).__module__}:{type(node).__qualname__}", "fields": named}
        if isinstance(node, dict):
            return {_KIND: "dict", "items": {str(key): walk(item, f"{at}.{key}") for key, item in node.items()}}
        if isinstance(node, list | tuple):
            return {_KIND: type(node).__name__, "items": [walk(item, f"{at}.{i}") for i, item in enumerate(node)]}
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise TypeError(f"{at} of a kernel's state is a {type(node).__name__}, which cannot be saved")

    return walk(value, path), tensors


def unpack(tree: Any, tensors: dict[str, Tensor], device: torch.device | str = "cpu") -> Any:
    """The value that `pack` took apart, its tensors on `device`. Only dataclasses of this package are built."""
    if not isinstance(tree, dict):
        return tree
    kind = tree[_KIND]
    if kind == "tensor":
        # A copy: what safetensors returns may lie in memory at addresses that change how sums are vectorised.
        return tensors[tree["path"]].clone().to(device)
    if kind == "dict":
        return {key: unpack(item, tensors, device) for key, item in tree["items"].items()}
    if kind in ("list", "tuple"):
        items = [unpack(item, tensors, device) for item in tree["items"]]
        return items if kind == "list" else tuple(items)
    return _dataclass(kind)(**{key: unpack(item, tensors, device) for key, item in tree["fields"].items()})


def _dataclass(kind: str) -> Any:
    module, _, name = kind.partition(":")
    found = getattr(importlib.import_module(module), name, None) if module.startswith(_PACKAGE) else None
    if not is_dataclass(found):
        raise RunError(f"the checkpoint holds a '{kind}', unknown to this version; use the version that made it")
    return found


def settled(value: Any) -> Any:
    """The same tree with every tensor contiguous.

    A restored tensor is contiguous, and how a tensor lies in memory can change the last bit of a vectorised sum: so
    that a resumed chain equals an uninterrupted one, the driver settles every state it goes on from.
    """
    if isinstance(value, Tensor):
        return value if value.is_contiguous() else value.contiguous()
    if is_dataclass(value) and not isinstance(value, type):
        parts = {item.name: getattr(value, item.name) for item in fields(value)}
        new = {key: settled(part) for key, part in parts.items()}
        return value if all(new[key] is parts[key] for key in parts) else type(value)(**new)
    if isinstance(value, dict):
        changed = {key: settled(part) for key, part in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    return value
