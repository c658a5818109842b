"""The model card of a translation model."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ParallelFacts:
    """`kind`: what sort of model; `data`: how much text; `note`: its source and licence; `metrics`: name to value."""

    name: str
    kind: str
    license: str
    data: str
    note: str
    command: tuple[str, ...]
    seed: int
    signature: str
    metrics: dict[str, float]
    versions: dict[str, str]


def write_parallel_card(facts: ParallelFacts) -> str:
    """The card as Markdown with the YAML head that model hubs read."""
    head: dict[str, Any] = {
        "license": facts.license,
        "library_name": "maskropolis",
        "pipeline_tag": "translation",
        "tags": ["translation", facts.kind.replace(" ", "-"), "maskropolis"],
    }
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in head.items())  # JSON is YAML
    rows = "\n".join(f"| {name} | {value:.4g} |" for name, value in facts.metrics.items())
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return f"""---
{lines}
---

# {facts.name}

A {facts.kind} made with maskropolis.

```sh
maskropolis translate --model {facts.name} source.txt
```

## Data

{facts.data}

{facts.note or "Source and licence of the text: not stated. Say so with --data-note."}

## Training

```
{shlex.join(facts.command)}
```

Seed {facts.seed}; {versions}. Every option is in `training.json`, the course of the run in `metrics.jsonl`.

## Measured on held-out pairs

| | |
| --- | --- |
{rows}

Signature: `{facts.signature}`
"""
