"""The English model of the package, "storybook": where its files are.

A BERT of 6 layers, width 384 and 12,000 word pieces, trained with `maskropolis train mlm` on 76 books; its card, data,
licences and figures are in `storybook_data/README.md`.
"""

from __future__ import annotations

from pathlib import Path

from maskropolis.errors import ModelError

_FOLDER = Path(__file__).parent / "storybook_data"
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def storybook_path() -> Path:
    """The folder of the model, loadable with `AutoModelForMaskedLM`. Raises `ModelError` if it is not installed."""
    missing = [name for name in _NEEDED if not (_FOLDER / name).is_file()]
    if missing:
        raise ModelError(
            f"the English model is not in this installation ({missing[0]} is missing): build it with `make model`, "
            "or name another model with --model NAME_OR_FOLDER"
        )
    return _FOLDER
