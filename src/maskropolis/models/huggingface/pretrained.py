"""The one place that loads anything from transformers: configurations, tokenizers and networks.

Each function passes on whether code that comes with a model may run, `trust`, as a plain yes or no: without an answer
transformers would ask for one on standard input, where piped data could say yes. A test holds that nothing else in the
package calls `from_pretrained` of transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from maskropolis.errors import ModelError
from maskropolis.records.inside import is_plain_name


def config_from(name: str, *, trust: bool = False, revision: str | None = None) -> Any:
    """The configuration saved under `name`. Raises what transformers raises."""
    from transformers import AutoConfig

    _require_plain(name)
    return AutoConfig.from_pretrained(name, trust_remote_code=bool(trust), revision=revision)


def tokenizer_from(name: str, *, trust: bool = False, revision: str | None = None, **where: Any) -> Any:
    """The tokenizer saved under `name`. Raises what transformers raises."""
    from transformers import AutoTokenizer

    _require_plain(name)
    return AutoTokenizer.from_pretrained(name, trust_remote_code=bool(trust), revision=revision, **where)


def network_from(family: Any, name: str, *, trust: bool = False, **options: Any) -> Any:
    """What `family`, a class of transformers such as `AutoModel` or its name, makes of the weights under `name`.

    Pickles are opened as tensors only. Raises what transformers raises.
    """
    import transformers

    kind = getattr(transformers, family) if isinstance(family, str) else family
    _require_plain(name)
    _require_own_attention(name, trust, options.get("revision"))
    given = {"weights_only": True, "trust_remote_code": bool(trust), **options}
    if not kind.__name__.startswith("Auto"):  # a class of ours: it has its code already
        del given["trust_remote_code"]
    return kind.from_pretrained(name, **given)


def _require_own_attention(name: str, trust: bool, revision: str | None) -> None:
    """Raises `ValueError` if the saved configuration names a repository whose compiled code is to compute attention."""
    from transformers import PreTrainedConfig

    try:
        saved, _ = PreTrainedConfig.get_config_dict(name, revision=revision)
    except Exception:
        return  # whoever loads the model says what is wrong with it
    if "/" in str(saved.get("attn_implementation") or saved.get("_attn_implementation") or "") and not trust:
        raise ValueError("its attention is code from elsewhere, which needs trust_remote_code")


def _require_plain(name: str) -> None:
    """Raises `ModelError` if a local folder has a device or pipe among its files, or an index that leads out of it.

    Links to files are common in caches of hubs, and are followed.
    """
    folder = Path(name)
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ModelError(f"'{path}' is no regular file; expected a saved model")
    for index in folder.glob("*.index.json"):
        for part in _shards(index):
            if not is_plain_name(part):
                raise ModelError(
                    f"'{index}' names the weights '{part}', which are not in its folder; it was not opened"
                )


def _shards(index: Path) -> set[Any]:
    try:
        named = json.loads(index.read_bytes())["weight_map"].values()
        return {part if isinstance(part, str) else "" for part in named}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return set()  # whoever loads the weights says what is wrong with it


def own_refusal(name: str, error: Exception) -> ModelError | None:
    """Our own refusal, if `error` is one or says that the model under `name` comes with code that nobody asked for."""
    if isinstance(error, ModelError):
        return error
    if "trust_remote_code" not in str(error).lower():
        return None
    return ModelError(f"'{name}' wants to run code of its own; read it, then pass --trust-remote-code if you trust it")
