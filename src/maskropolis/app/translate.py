"""`maskropolis translate`: translations by a conditional masked language model."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskropolis.app import model_options
from maskropolis.app.translate_inputs import lines_of, read_as, references_of
from maskropolis.errors import InputError

if TYPE_CHECKING:
    from maskropolis.translation import Line, Translation, Work


def register(application: typer.Typer) -> None:
    application.command("translate")(translate)


def translate(
    source: Annotated[str, typer.Argument(metavar="[FILE]", help="Sources, one a line, .gz too, or - .")] = "-",
    model: Annotated[str, typer.Option("--model", "-m", metavar="DIR", help="Folder of a translation model.")] = "",
    decoder: Annotated[str, typer.Option(help="mask-predict, mh or gibbs.")] = "mask-predict",
    iterations: Annotated[int, typer.Option(help="Of Mask-Predict, as decoder or as start.")] = 10,
    length_beam: Annotated[int, typer.Option(help="How many of the likeliest lengths are tried.")] = 3,
    start: Annotated[
        str | None,
        typer.Option(help="Of mh and gibbs: mask-predict, greedy, masks, sampled, random; by default mask-predict."),
    ] = None,
    hypotheses: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Translations to start from, one a line; an empty source has none."),
    ] = None,
    kernel: Annotated[
        str, typer.Option(help="Of mh, as in `maskropolis kernels`: single-site, block:k=2, ….")
    ] = "single-site",
    energy: Annotated[str, typer.Option(help="raw or norm.")] = "norm",
    sweeps: Annotated[float, typer.Option(help="Expected visits of every position.")] = 10.0,
    temperature: Annotated[float, typer.Option(help="τ at the start.")] = 1.0,
    final_temperature: Annotated[
        float | None, typer.Option(help="τ at the end, for annealing; without it τ stays as it is.")
    ] = None,
    schedule: Annotated[str, typer.Option(help="How τ falls: linear, geometric or cosine.")] = "geometric",
    answer: Annotated[str, typer.Option(help="lowest: the state of lowest energy met; last: the last one.")] = "lowest",
    choose: Annotated[
        str, typer.Option(help="Among lengths by energy: per-token, total, or joint with the length.")
    ] = "per-token",
    n_best: Annotated[int, typer.Option(help="Translations for each source (JSON lines).")] = 1,
    samples: Annotated[int, typer.Option(help="Also so many states of each chain (JSON lines).")] = 0,
    thin: Annotated[float, typer.Option(help="Sweeps between samples.")] = 1.0,
    with_energy: Annotated[bool, typer.Option("--with-energy", help="Energies of Mask-Predict's output too.")] = False,
    beam: Annotated[int, typer.Option(help="Of an autoregressive model; 1 is greedy.")] = 5,
    separator: Annotated[
        str | None, typer.Option(help="Use a plain masked model: source, this text (or its own if empty), target.")
    ] = None,
    length_ratio: Annotated[float, typer.Option(help="With --separator: target tokens for each source token.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the chains.")] = 0,
    detokenise: Annotated[bool, typer.Option("--detokenise", help="Undo Moses escapes and tokenisation.")] = False,
    reference: Annotated[str | None, typer.Option(metavar="FILE", help="Score against it: BLEU and chrF.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave empty, with a warning, what cannot be translated.")
    ] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="Text, or .jsonl with energies; - for stdout.")] = "-",
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines with energies and n-best lists.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a partial --output.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    device: model_options.Device = "auto",
    dtype: model_options.Dtype = "float32",
    trust_remote_code: model_options.TrustRemoteCode = False,
    token_budget: model_options.TokenBudget = None,
) -> None:
    """Translate sentences, one a line, in order; an empty line stays empty.

    \b
    mask-predict  fills all masks at once and redoes the least certain, --iterations times
    mh            Metropolis–Hastings on the energy of the translation, annealed with --final-temperature
    gibbs         the degenerate sampler: every proposal accepted; a baseline
    An autoregressive model is decoded by beam search, whatever --decoder says.

    \b
    maskropolis translate -m de-en --decoder mh --final-temperature 0.1 < source.txt > target.txt
    maskropolis translate source.txt -m de-en --decoder mh --kernel block:k=2 --n-best 5 -o best.jsonl
    """
    given: dict[str, Any] = {
        "decoder": decoder, "iterations": iterations, "length_beam": length_beam, "kernel": kernel, "energy": energy,
        "sweeps": sweeps, "temperature": temperature, "final_temperature": final_temperature, "shape": schedule,
        "n_best": n_best, "samples": samples, "thin": thin, "choose": choose, "seed": seed,
        "start": start or ("given" if hypotheses else "mask-predict"), "lowest": _lowest(answer),
    }  # fmt: skip
    if not model:
        raise InputError("name the translation model with --model DIR; `maskropolis train cmlm` makes one")
    if hypotheses is not None and (start not in (None, "given") or decoder == "mask-predict"):
        raise InputError("--hypotheses are a start of --decoder mh or gibbs; they go with no other --start")
    as_json = json_lines or output.endswith(".jsonl")
    if (n_best > 1 or samples) and not as_json:
        raise InputError("n-best lists and samples need JSON lines: --json, or an --output that ends in .jsonl")

    from maskropolis.translation import load_translator, make_decoding

    decoding = make_decoding(**given, with_energy=with_energy or as_json)
    references = references_of(reference, source)
    lines = lines_of(source, hypotheses)
    first = next(lines, None)
    as_read = read_as(source, hypotheses, dtype, as_json, detokenise)
    options: dict[str, Any] = {"device": device, "dtype": dtype, "separator": separator, "length_ratio": length_ratio}
    options["trust_remote_code"] = trust_remote_code
    opened = load_translator(model, beam=beam, **options)
    if token_budget is not None:
        opened.budget.tokens = max(1, token_budget)
    _require_able(opened, n_best, samples, hypotheses)
    rest = iter(()) if first is None else itertools.chain([first], lines)
    job = _Job(opened, decoding, as_json, detokenise, skip_bad, as_read)
    job.run(rest, output, resume, overwrite, references)


def _require_able(model: Any, n_best: int, samples: int, hypotheses: str | None) -> None:
    """Raises `InputError` for what an autoregressive model cannot give."""
    from maskropolis.decoders.beam import AutoregressiveTranslator

    if isinstance(model, AutoregressiveTranslator) and (n_best > 1 or samples or hypotheses is not None):
        raise InputError(
            "an autoregressive model gives one translation by beam search; "
            "--n-best, --samples and --hypotheses need a conditional masked model"
        )


def _lowest(answer: str) -> bool:
    from maskropolis.errors import unknown_name

    if answer not in ("lowest", "last"):
        raise unknown_name("answer", answer, ("lowest", "last"))
    return answer == "lowest"


class _Job:
    """One stream of translations from a source to an output."""

    def __init__(
        self, model: Any, decoding: Any, as_json: bool, detokenise: bool, skip_bad: bool, as_read: str
    ) -> None:
        self.model, self.decoding, self.as_json = model, decoding, as_json
        self.detokenise, self.skip_bad, self.as_read = detokenise, skip_bad, as_read

    def run(
        self, lines: Iterator[Line], output: str, resume: bool, overwrite: bool, references: list[str] | None
    ) -> None:
        from maskropolis.app.partial import partial_told
        from maskropolis.runs.line_output import open_lines
        from maskropolis.translation import CHUNK, Work, signature, translate_lines

        said = signature(self.model, self.decoding)
        total, began, texts = Work(), time.perf_counter(), list[str]()
        with (
            partial_told(output),
            open_lines(output, f"{said}|{self.as_read}", resume=resume, overwrite=overwrite) as out,
        ):
            skipped = sum(1 for _ in itertools.islice(lines, out.done))
            if skipped:
                print(f"resumed after {skipped} lines", file=sys.stderr)
            with _progress(output, skipped) as show:

                def observe(work: Work) -> None:
                    total.add(work)
                    show(total, time.perf_counter() - began)

                notify = lambda message: print(f"warning: {message}", file=sys.stderr)  # noqa: E731
                stream = translate_lines(
                    lines,
                    self.model,
                    self.decoding,
                    chunk=CHUNK,
                    skip_bad=self.skip_bad,
                    notify=notify,
                    observe=observe,
                )
                with _written_at_the_end(out.write) as add:
                    for number, one in enumerate(stream, start=1):
                        texts.append(one.text)
                        add(self._shown(one), number % CHUNK == 0 or output == "-")
        print(said, file=sys.stderr)
        print(_summary(total, time.perf_counter() - began), file=sys.stderr)
        if references is not None:
            self._score(texts, skipped, references)

    def _shown(self, one: Translation) -> str:
        from maskropolis.searching.moses import detokenise

        clean: Callable[[str], str] = detokenise if self.detokenise else str
        if not self.as_json:
            return " ".join(clean(one.text).split())
        fields: dict[str, Any] = {"line": one.line.number, "source": one.line.text}
        for name in ("candidates", "samples"):
            listed = [
                {"text": clean(c.text), "tokens": c.tokens, "energy": _rounded(c.energy), "score": _rounded(c.score)}
                for c in getattr(one, name)
            ]
            if listed or name == "candidates":
                fields[name] = listed
        return json.dumps(fields, ensure_ascii=False)

    def _score(self, texts: list[str], skipped: int, references: list[str]) -> None:
        from maskropolis.searching.quality import FORMS, quality

        wanted = references[skipped : skipped + len(texts)]
        if skipped:
            print(f"scores are of the {len(texts)} lines translated now", file=sys.stderr)
        for form in FORMS:
            found = quality(texts, wanted, form)
            print(f"{form}: BLEU {found.bleu:.2f}, chrF {found.chrf:.2f}  {found.signature}", file=sys.stderr)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


@contextlib.contextmanager
def _written_at_the_end(write: Callable[[list[str]], None]) -> Iterator[Callable[[str, bool], None]]:
    """Collects lines and writes them in portions; what was finished before an error or a signal is written too."""
    waiting: list[str] = []

    def flush() -> None:
        some = waiting.copy()
        waiting.clear()  # before they are written: an interrupt in between must not write them twice
        if some:
            write(some)

    def add(line: str, now: bool) -> None:
        waiting.append(line)
        if now:
            flush()

    try:
        yield add
    finally:
        flush()


def _summary(work: Work, seconds: float) -> str:
    parts = [f"{work.sources} sentences in {seconds:.1f} s"]
    if seconds > 0 and work.sources:
        parts.append(f"{work.sources / seconds:.2f} a second")
    if work.rows:
        parts.append(f"{work.rows} model rows, {work.rows / max(seconds, 1e-9):.0f} a second")
    if work.acceptance is not None:
        parts.append(f"accepted {work.acceptance:.1%} of proposals, {work.mobility:.1%} changed a token")
    return ", ".join(parts)


@contextlib.contextmanager
def _progress(output: str, done: int) -> Iterator[Callable[[Work, float], None]]:
    """A counter of sentences on standard error, if that is a terminal which the results do not use as well."""
    if not sys.stderr.isatty() or (output == "-" and sys.stdout.isatty()):
        yield lambda work, seconds: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from maskropolis.terminal import new_console

    columns = (SpinnerColumn(), TextColumn("translating  {task.fields[report]}"), TimeElapsedColumn())
    with Progress(*columns, console=new_console(stderr=True), transient=True) as bar:
        task = bar.add_task("translating", total=None, report=f"{done} sentences")

        def show(work: Work, seconds: float) -> None:
            report = f"{done + work.sources} sentences  {work.sources / max(seconds, 1e-9):.1f}/s"
            if work.acceptance is not None:
                report += f"  accepted {work.acceptance:.0%}"
            bar.update(task, report=report)

        yield show
