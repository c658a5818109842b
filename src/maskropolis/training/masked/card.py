"""The model card: what the model is, what it was trained on and how, and how well it does."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """`metrics`: name to value; `data`: how much text, how divided; `note`: source and licence of the text."""

    name: str
    base: str
    license: str
    data: str
    note: str
    command: tuple[str, ...]
    seed: int
    signature: str
    metrics: dict[str, float]
    versions: dict[str, str]


def write_card(facts: Facts) -> str:
    """The card as Markdown with the YAML head that model hubs read."""
    head = "\n".join(f"{key}: {json.dumps(value)}" for key, value in _head(facts).items())  # JSON is YAML
    rows = "\n".join(f"| {name} | {value:.4g} |" for name, value in facts.metrics.items())
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return f"""---
{head}
---

# {facts.name}

A masked language model made with maskropolis, started from {facts.base}.

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("{facts.name}"), AutoModelForMaskedLM.from_pretrained("{facts.name}")
```

## Data

{facts.data}

{facts.note or "Source and licence of the text: not stated. Say so with --data-note."}

## Training

```
{shlex.join(facts.command)}
```

Seed {facts.seed}; {versions}.
The loss over the run is in `loss.html`, its points in `metrics.jsonl`, and every option in `training.json`.

## Measured on the held-out text

| | |
| --- | --- |
{rows}

Signature: `{facts.signature}`
"""


def _head(facts: Facts) -> dict[str, Any]:
    return {
        "license": facts.license,
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["masked-language-model", "maskropolis"],
    }
