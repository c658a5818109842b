"""Everything that the training of a translation model can be told, checked before any slow work."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from maskropolis.errors import InputError, unknown_name

KINDS = ("cmlm", "seq2seq")
_FREE = {"steps", "minutes", "epochs", "patience", "checkpoint_every", "license", "data_note", "compile"}
"""Options that may differ when a run is resumed."""


@dataclass(frozen=True)
class ParallelOptions:
    """`kind`: cmlm or seq2seq. `source`, `target`: line-aligned files. `distill`: another model's translations of the
    sources, trained on in place of `target`. `tokens`: target tokens in a batch. `copies` (cmlm): maskings of each
    target in a batch, which share its encoded source. `average`: how many of the last evaluated states are averaged at
    the end."""

    kind: str
    source: str
    target: str
    distill: str | None = None
    valid_source: str | None = None
    valid_target: str | None = None
    hold_out: int = 500
    validation_sentences: int = 500
    validation_iterations: int = 10
    vocabulary_size: int = 8000
    lowercase: bool = False
    width: int = 256
    heads: int = 4
    feed_forward: int = 1024
    encoder_layers: int = 3
    decoder_layers: int = 3
    longest: int = 128
    dropout: float = 0.1
    label_smoothing: float = 0.1
    tokens: int = 2600
    copies: int = 1
    epochs: float = 20.0
    steps: int | None = None
    minutes: float | None = None
    learning_rate: float = 1e-3
    warmup: int = 400
    weight_decay: float = 0.01
    clip: float = 1.0
    precision: str = "auto"
    evaluate_every: int = 500
    checkpoint_every: int = 500
    patience: int | None = None
    average: int = 5
    compile: bool = False
    seed: int = 0
    license: str = "unknown"
    data_note: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind of translation model", self.kind, KINDS)
        counted = ("hold_out", "validation_sentences", "validation_iterations", "width", "heads", "feed_forward")
        for name in (*counted, "encoder_layers", "decoder_layers", "tokens", "copies", "average"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', ' ')} is {getattr(self, name)}; expected at least 1")
        if self.width % self.heads:
            raise InputError(f"a width of {self.width} does not divide into {self.heads} heads")
        if self.longest < 4:
            raise InputError(f"sentences of at most {self.longest} tokens are too short; expected at least 4")
        for name in ("dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(
                    f"the {name.replace('_', ' ')} is {getattr(self, name):g}; expected at least 0, below 1"
                )
        if not self.epochs > 0:
            raise InputError(f"the number of epochs is {self.epochs:g}; expected more than 0")
        if self.seed < 0:
            raise InputError(f"the seed is {self.seed}; expected 0 or more")
        if (self.valid_source is None) != (self.valid_target is None):
            raise InputError("--valid-source and --valid-target go together; give both or neither")

    def fixed(self) -> dict[str, Any]:
        """The options that must be the same when a run is resumed."""
        return {name: value for name, value in self.as_json().items() if name not in _FREE}

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
