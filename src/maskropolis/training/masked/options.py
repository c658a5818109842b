"""Everything a training run can be told, in one record: what the command line fills in and the run folder keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from maskropolis.errors import InputError, unknown_name
from maskropolis.training.objectives import Bert, D3pm, GaussianDae, Mdlm, Mixture, Objective, UniformRate

GAUSSIAN = "gaussian-dae"
OBJECTIVES = ("bert", "uniform", "mixture", "mdlm", "d3pm", GAUSSIAN)
_DIFFUSION = ("mdlm", "d3pm")
_FREE = {"steps", "minutes", "epochs", "patience", "checkpoint_every", "license", "data_note", "trust_remote_code"}
"""Options that may differ when a run is resumed."""


@dataclass(frozen=True)
class Options:
    """`texts`: files or folders. `init`: a saved model, or scratch:tiny|small|base. Rates are shares of positions."""

    texts: tuple[str, ...]
    init: str
    column: str = "text"
    validation: tuple[str, ...] = ()
    hold_out: float = 0.05
    validation_rows: int = 512
    shape: str = "bert"
    vocabulary: str = "wordpiece"
    vocabulary_size: int = 8000
    cased: bool = False
    prune: int | None = None
    plain_marks: bool = False
    length: int = 128
    rows: int = 32
    alone: float = 0.0
    objective: str = "bert"
    mask_rate: float = 0.15
    masked: float = 0.8
    replaced: float = 0.1
    rate_low: float = 0.0
    rate_high: float = 1.0
    choose: str = "token"
    uniform_share: float = 0.5
    noise: str = "log-linear"
    time_steps: int = 1000
    sigma_low: float = 0.1
    sigma_high: float = 4.0
    epochs: float = 1.0
    steps: int | None = None
    minutes: float | None = None
    learning_rate: float = 5e-4
    warmup: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0
    dropout: float = 0.0
    precision: str = "auto"
    evaluate_every: int = 500
    checkpoint_every: int = 500
    patience: int | None = None
    seed: int = 0
    license: str = "unknown"
    data_note: str = ""
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        for name in ("rows", "validation_rows", "vocabulary_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', ' ')} is {getattr(self, name)}; expected at least 1")
        if self.length < 4:
            raise InputError(f"rows of {self.length} tokens are too short; expected a length of at least 4")
        if not 0 <= self.alone <= 1:
            raise InputError(f"the share of single sentences is {self.alone:g}; expected 0 to 1")
        if not 0 <= self.dropout < 1:
            raise InputError(f"the dropout is {self.dropout:g}; expected 0 <= dropout < 1")
        if self.epochs <= 0:
            raise InputError(f"the number of epochs is {self.epochs:g}; expected more than 0")
        if self.seed < 0:
            raise InputError(f"the seed is {self.seed}; expected 0 or more")
        self.training_objective()

    def training_objective(self) -> Objective:
        """The objective that these options name. Raises `InputError`."""
        if self.objective not in OBJECTIVES:
            raise unknown_name("objective", self.objective, OBJECTIVES)
        bert = Bert(self.mask_rate, self.masked, self.replaced, self.choose)
        uniform = UniformRate(self.rate_low, self.rate_high, self.choose)
        objectives: dict[str, Objective] = {
            "bert": bert,
            "uniform": uniform,
            "mixture": Mixture(bert, uniform, self.uniform_share),
            "mdlm": Mdlm(self.noise),
            "d3pm": D3pm(self.time_steps, self.noise, self.rate_high),
            GAUSSIAN: GaussianDae(self.sigma_low, self.sigma_high),
        }
        return objectives[self.objective]

    def validation_objective(self) -> Objective:
        """What held-out text is measured with: the BERT objective, unless it is no part of the training. Of the
        Gaussian objective, rows of which every token is noisy."""
        if self.objective == GAUSSIAN:
            return GaussianDae(self.sigma_low, self.sigma_high, masks=0.0, visible=0.0)
        if self.objective in ("uniform", *_DIFFUSION):
            return self.training_objective()
        return Bert(self.mask_rate, self.masked, self.replaced, self.choose)

    def fixed(self) -> dict[str, Any]:
        """The options that must be the same when a run is resumed."""
        idle = set() if self.objective in _DIFFUSION else {"noise", "time_steps"}
        idle |= set() if self.objective == GAUSSIAN else {"sigma_low", "sigma_high"}
        return {name: value for name, value in self.as_json().items() if name not in _FREE | idle}

    def as_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
