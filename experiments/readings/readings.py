"""The steps of the experiment: train a model with each objective, measure all of them, write what was found."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import common
import page
import writers
from nats import numbers
from recipe import held_out

import maskropolis
from maskropolis.errors import InputError
from maskropolis.evaluation.evaluating import Questions, evaluate
from maskropolis.evaluation.intervals import Resampling
from maskropolis.evaluation.judging.judge import Judge
from maskropolis.evaluation.systems import System
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.training.masked.mlm import train_mlm
from maskropolis.training.masked.options import Options
from maskropolis.training.output import RECORD, read_record

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/readings.md"
FIGURE = "../experiments/readings/readings.png"  # from the page
BUNDLED = "storybook"
JUDGED = ("judge_perplexity_per_token", "self_bleu", "distinct_2", "unique")


@dataclass(frozen=True)
class Scale:
    """How much is computed.

    Attributes:
        every: of how many training books one is read: more than the steps suffice for. init: what every model starts
            from. steps: of training each. rows, length: of a training batch.
        sentences, copies: held-out sentences of `words` words that are scored, and noisy copies of each for a bound.
        texts, tokens: how many texts a system writes, and of how many tokens. sweeps: of a chain.
        iterations: of Mask-Predict. langevin_steps, langevin_levels: of the dynamics.
    """

    name: str = "full"
    objectives: tuple[str, ...] = ("bert", "mixture", "mdlm", "d3pm", "gaussian-dae")
    every: int = 5
    init: str = "storybook"
    steps: int = 200
    rows: int = 32
    length: int = 64
    learning_rate: float = 2e-4
    warmup: int = 20
    validation_rows: int = 128
    sentences: int = 100
    words: tuple[int, int] = (8, 20)
    copies: int = 32
    texts: int = 48
    tokens: int = 12
    sweeps: int = 5
    iterations: int = 10
    langevin_steps: int = 128
    langevin_levels: int = 32
    resamples: int = 1000


FULL = Scale()
SHORT = Scale(
    "short", objectives=("mdlm", "gaussian-dae"), every=40, init="scratch:tiny", steps=3, warmup=1, validation_rows=4,
    rows=4, length=16, sentences=3, words=(2, 8), copies=4, texts=4, tokens=4, sweeps=1, iterations=2, langevin_steps=4,
    langevin_levels=2, resamples=20,
)  # fmt: skip


class Job:
    """One experiment in a folder: what has been done is kept there as JSON and not done again."""

    def __init__(
        self,
        books: Path,
        work: Path,
        scale: Scale,
        seed: int = 0,
        steps: int | None = None,
        judge: str | None = None,
        threads: int = 1,
    ) -> None:
        self.given, self.seed, self.threads = books, seed, threads
        self.scale = scale if steps is None else replace(scale, steps=steps)
        self.work = work.resolve() / scale.name
        self.out = HERE if scale.name == FULL.name else self.work
        self._judge = judge
        self.work.mkdir(parents=True, exist_ok=True)

    @property
    def models(self) -> tuple[str, ...]:
        """The bundled model, and those trained here, by their objectives."""
        return BUNDLED, *self.scale.objectives

    # -- train ---------------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """A model for each objective; a run that was stopped goes on, a finished one is left alone."""
        for objective in self.scale.objectives:
            folder = self.work / objective
            started = (folder / RECORD).is_file()
            if started and read_record(folder).get("status") == "finished":
                continue
            print(f"training {objective}", flush=True)
            train_mlm(self.options(objective), folder, resume=started, command=("experiments/readings/run.py", "train"))

    def options(self, objective: str) -> Options:
        """The same data, order, start and number of steps for every objective; only the objective differs."""
        training, validation = self.split
        return Options(
            texts=tuple(str(file) for file in training),
            validation=tuple(str(file) for file in validation if file not in training),
            hold_out=0.3,  # where no file is held out
            init=self.scale.init,
            vocabulary_size=300,  # where the start brings none
            objective=objective,
            time_steps=1000,
            length=self.scale.length,
            rows=self.scale.rows,
            alone=0.2,
            learning_rate=self.scale.learning_rate,
            warmup=self.scale.warmup,
            steps=self.scale.steps,
            evaluate_every=100,
            checkpoint_every=100,
            validation_rows=self.scale.validation_rows,
            seed=self.seed + 2,
            license="apache-2.0",
            data_note="English books in the editions of Standard Ebooks, CC0 1.0.",
        )

    @cached_property
    def split(self) -> tuple[list[Path], list[Path]]:
        """(training files, held-out files): those of storybook; for a trial one text file, which is both."""
        validation = common.books_of(self.given, self.work.parent)
        if self.given.is_file() and self.given.suffix == ".txt":
            return [self.given], validation
        folder = self.given if self.given.is_dir() else self.work.parent / "books"
        return sorted(held_out(folder).training_files)[:: self.scale.every], validation

    # -- measure -------------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Numbers in nats and samples of every model, then the judge's opinion of all samples together."""
        for name in self.models:
            parts: dict[str, Callable[[HuggingFaceMaskedLM], dict[str, Any]]] = {"numbers": self._numbers}
            for writer, write in writers.makers(self.scale, self.seed).items():
                if writers.suits(writer, name):
                    parts[f"samples-{writer}"] = write
            missing = [part for part in parts if not self._file(name, part).is_file()]
            if not missing:
                continue
            model = self.model(name)
            for part in missing:
                print(f"{name}: {part}", flush=True)
                self._once(name, part, partial(parts[part], model))
        self._once("all", f"judged-{self._sampled_digest()}", self._judged)

    def _numbers(self, model: HuggingFaceMaskedLM) -> dict[str, Any]:
        return numbers(model, self.sentences, self.scale.copies, self.seed, self.resampling)

    def model(self, name: str) -> HuggingFaceMaskedLM:
        """A trained model by its objective, or the bundled one. Raises `InputError` if it is not trained yet."""
        if name == BUNDLED:
            return maskropolis.load()
        folder = self.work / name
        if not (folder / RECORD).is_file() or read_record(folder).get("status") != "finished":
            raise InputError(f"the model '{name}' is not trained yet; run the step train first")
        model = maskropolis.load(str(folder))
        model.name = f"readings-{name}"  # signatures name no folder of this machine
        return model

    @cached_property
    def sentences(self) -> list[str]:
        """Held-out sentences, evenly spread over those of the right length. Raises `InputError` if there are few."""
        low, high = self.scale.words
        fitting = [text for _, text in common.sentences(self.split[1]) if low <= len(text.split()) <= high]
        wanted = max(self.scale.sentences, self.scale.texts)
        if len(fitting) < wanted:
            raise InputError(f"the held-out books have {len(fitting)} sentences that fit; expected at least {wanted}")
        return [fitting[i * len(fitting) // wanted] for i in range(wanted)]

    @property
    def resampling(self) -> Resampling:
        return Resampling(resamples=self.scale.resamples, seed=self.seed, halves=min(200, self.scale.resamples))

    def _judged(self) -> dict[str, Any]:
        """Every system's texts and the books' own sentences under the judge; and how different they are."""
        systems = [System.of(name, found["texts"]) for name, found in self._sampled().items()]
        systems.append(System.of("books", self.sentences[: self.scale.texts]))
        found = evaluate(systems, Questions(judge=self.judge(), resampling=self.resampling))
        of_systems = {
            result.system.name: {name: page.estimate(result.measures[name]) for name in JUDGED}
            for result in found.results
        }
        return {"signature": found.signature, "systems": of_systems}

    def judge(self) -> Judge:
        """Raises `InputError` if no judge is named and that of the package is not installed."""
        return Judge.load(self._judge or common.bundled_judge())

    def _sampled(self) -> dict[str, dict[str, Any]]:
        """What each system wrote, by `model sampler`."""
        found = {}
        for name in self.models:
            for writer in writers.NAMES:
                file = self._file(name, f"samples-{writer}")
                if file.is_file():
                    found[f"{name} {writer}"] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def _sampled_digest(self) -> str:
        texts = json.dumps([found["texts"] for found in self._sampled().values()])
        return hashlib.sha256(texts.encode()).hexdigest()[:12]

    def _file(self, model: str, part: str) -> Path:
        return self.work / "measured" / f"{model}.{part}.json"

    def _once(self, model: str, part: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What was kept of this part, or what is made of it now."""
        file = self._file(model, part)
        if not file.is_file():
            begin = time.perf_counter()
            made = make()
            file.parent.mkdir(exist_ok=True)
            common.write_json(file, made | {"took": round(time.perf_counter() - begin, 1)})
        return dict(json.loads(file.read_text(encoding="utf-8")))

    # -- report --------------------------------------------------------------------------------------------------------

    def results(self) -> dict[str, Any]:
        """All that has been measured. Raises `InputError` where something is missing."""
        judged = self._file("all", f"judged-{self._sampled_digest()}")
        needed = [*(self._file(name, "numbers") for name in self.models), judged]
        if not all(file.is_file() for file in needed):
            raise InputError("there is nothing complete to show yet; run the steps train and measure first")
        opinion = json.loads(judged.read_text(encoding="utf-8"))
        models = {name: self._about(name) for name in self.models}
        systems = []
        for name, found in self._sampled().items():
            model, _, sampler = name.partition(" ")
            kept = {key: value for key, value in found.items() if key not in ("texts", "took")}
            some = {"examples": found["texts"][:3]}
            systems.append({"model": model, "sampler": sampler} | opinion["systems"][name] | kept | some)
        settings = {key: value for key, value in asdict(self.scale).items() if key != "name"}
        settings |= {"seed": self.seed, "threads": self.threads}
        return {
            "signature": common.signature("readings", scale=self.scale.name, seed=self.seed),
            "scale": self.scale.name,
            "settings": settings,
            "models": models,
            "systems": systems,
            "books": opinion["systems"]["books"],
            "judged_by": opinion["signature"],
        } | common.circumstances()

    def _about(self, name: str) -> dict[str, Any]:
        found = json.loads(self._file(name, "numbers").read_text(encoding="utf-8"))
        found.pop("took", None)
        if name == BUNDLED:
            return {"training": None} | found
        record = read_record(self.work / name)
        training = {key: record[key] for key in ("step", "tokens", "metrics") if key in record}
        return {"training": {"objective": name, "init": self.scale.init, **training}} | found

    def table(self) -> None:
        """results.json, results.md and, on the full scale, the table of the page."""
        found = self.results()
        common.write_json(self.out / "results.json", found)
        text = page.tables(found)
        (self.out / "results.md").write_text(text + "\n", encoding="utf-8")
        if self.scale.name == FULL.name:
            page.put_into(PAGE, f"{text}\n\n![bounds, and judge perplexity over self-BLEU]({FIGURE})")
        print(text)

    def figure(self) -> None:
        """readings.png, from results.json."""
        file = self.out / "results.json"
        if not file.is_file():
            raise InputError("there is no results.json to draw; run the step table first")
        page.draw(json.loads(file.read_text(encoding="utf-8")), self.out / "readings.png")
