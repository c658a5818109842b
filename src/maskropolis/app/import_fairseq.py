"""`maskropolis import-fairseq`: a published Mask-Predict checkpoint as a model of ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from maskropolis.models.conditional.fairseq.checkpoint import Imported


def register(application: typer.Typer) -> None:
    application.command("import-fairseq")(import_fairseq)


def import_fairseq(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A .pt file of the Mask-Predict fork.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the model.")],
    dictionary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its dictionary; else dict.*.txt beside it.")
    ] = None,
    codes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Byte-pair codes of subword-nmt; else text must come split.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write into a folder that is not empty.")] = False,
) -> None:
    """Import a checkpoint of Mask-Predict (fairseq), loading tensors only, and save it for `maskropolis translate`."""
    from maskropolis.errors import InputError
    from maskropolis.models.conditional.fairseq.checkpoint import import_fairseq as load
    from maskropolis.models.huggingface.quiet import quiet

    if folder.exists() and not folder.is_dir():
        raise InputError(f"'{folder}' is a file; expected the name of a folder for the model")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise InputError(f"the folder '{folder}' is not empty; pass --overwrite, or choose another one")
    found = load(checkpoint, dictionary, codes)
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        found.network.save_pretrained(folder)
        found.tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(_card(checkpoint, folder, found, codes is not None), encoding="utf-8")
    print(f"saved {folder}: {_described(found)}")
    if codes is None:
        print("sources must come split into sub-words, as the checkpoint was trained; see --codes", file=sys.stderr)


def _described(found: Imported) -> str:
    config = found.network.config
    return (
        f"{config.encoder_layers} + {config.decoder_layers} layers of width {config.d_model}, "
        f"{config.vocab_size} symbols, {found.parameters:,} parameters"
    )


def _card(checkpoint: Path, folder: Path, found: Imported, splits: bool) -> str:
    """The model card as Markdown; what is not known of a checkpoint, it says so."""
    from maskropolis import __version__

    text = "Text is split into sub-words by the codes that were imported with it."
    return f"""---
license: "unknown"
library_name: "maskropolis"
pipeline_tag: "translation"
tags: ["translation", "conditional-masked-language-model", "mask-predict", "maskropolis"]
---

# {folder.name}

A conditional masked language model, imported by maskropolis {__version__} from the Mask-Predict checkpoint
`{checkpoint.name}` (Ghazvininejad et al. 2019): {_described(found)}.

```sh
maskropolis translate --model {folder.name} source.txt
```

{text if splits else "Sources must come split into sub-words, as the checkpoint was trained."}

Languages, training text and licence are those of the checkpoint; nothing was measured on import.
"""
