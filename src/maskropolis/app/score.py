"""`maskropolis score`: how likely a masked language model finds sentences."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskropolis.app import model_options as options
from maskropolis.errors import InputError

if TYPE_CHECKING:
    from maskropolis.records import Record
    from maskropolis.scoring import SentenceScore, Settings


def register(application: typer.Typer) -> None:
    application.command("score")(score)


def score(
    source: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Sentences: text (one a line), table, .fasta, .smi, or - ."),
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="A sentence to score, instead of FILE; repeatable.")] = None,
    metric: Annotated[
        list[str], typer.Option(help="pll, pppl, raw, norm, pll-word-l2r, all; nelbo … denoising; repeatable.")
    ] = ["pll"],  # noqa: B006
    copies: Annotated[int, typer.Option(help="Bounds: noisy copies of each sentence, an even number.")] = 64,
    time_steps: Annotated[int, typer.Option(help="d3pm: steps T of the bound.")] = 1000,
    noise: Annotated[
        str, typer.Option(help="d3pm: log-linear, linear, cosine, polynomial:power=P or d3pm.")
    ] = "log-linear",
    sigma: Annotated[float, typer.Option(help="denoising: noise level σ.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Bounds: of all random numbers.")] = 0,
    per_token: Annotated[bool, typer.Option("--per-token", help="Add the scores of every token.")] = False,
    format: Annotated[str | None, typer.Option(help="Table, or text, fasta, smiles, tokens; by suffix.")] = None,
    text_field: Annotated[str, typer.Option(help="Field or column that holds the sentence.")] = "text",
    prefix_field: Annotated[str | None, typer.Option(help="Field with context before it, not scored.")] = None,
    suffix_field: Annotated[str | None, typer.Option(help="Field with context after it, not scored.")] = None,
    prefix: Annotated[str, typer.Option(help="Context before every sentence, visible but not scored.")] = "",
    suffix: Annotated[str, typer.Option(help="Context after every sentence, visible but not scored.")] = "",
    joint: Annotated[str, typer.Option(help="Put between context and sentence unless white space is there.")] = " ",
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Pass over empty lines.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="Output: .jsonl, .parquet, .csv, .fasta, or - .")] = "-",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    model: options.Model = None,
    tokenizer: options.Tokenizer = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    compile: options.Compile = False,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
    token_budget: options.TokenBudget = None,
) -> None:
    """Score sentences under a masked language model; JSON lines out, one a sentence, in input order.

    \b
    pll           pseudo-log-likelihood: sum of log p(token | all others), in nats; higher is likelier
    pppl          pseudo-perplexity: exp(-pll / tokens)
    raw, norm     energies: minus the sum of logits, minus the pll; lower is likelier
    pll-word-l2r  pll with the later pieces of the same word masked too (Kauf & Ivanova 2023)
    nelbo, d3pm   bounds on -log p(x) as a masked diffusion, continuous or of --time-steps; with a standard error
    any-order     the same as nelbo, by revealing the tokens one by one in random orders
    gaussian      bound on -log p(x) as a diffusion of embeddings, of a model trained with gaussian-dae
    denoising     -log p(token | noisy embeddings) at --sigma, summed; of such a model, lower is better

    \b
    maskropolis score --model bert-base-uncased --text "The cat sat on the mat."
    maskropolis score sentences.txt -m ./my-model --metric all --per-token -o scores.jsonl
    maskropolis score proteins.fasta -m ./my-esm -o scores.csv
    cut -f 3 table.tsv | maskropolis score - -m ./my-model | jq .pll
    """
    from maskropolis.models.text.codec import unknown_tokens
    from maskropolis.records import Fields, alphabet_of, check_output, open_records
    from maskropolis.scoring import WORD_L2R, estimate_settings, require_metrics, score_records, without_missing

    metrics = require_metrics(metric)
    bounds = estimate_settings(metrics, copies, time_steps, noise, sigma, seed)
    records = _records(source, text, Fields(text_field, prefix_field, suffix_field, skip_empty), format, prefix, suffix)
    check_output(output, overwrite, source)
    alphabet = alphabet_of(source, format)
    opened = options.open_model(
        model, tokenizer, device, dtype, allow_pickle, trust_remote_code, token_budget, alphabet, compile
    )
    asked, metrics = metrics, without_missing(metrics, metric, opened.codec)
    for left_out in set(asked) - set(metrics):
        print(f"left out {left_out}: the tokenizer does not say which tokens form a word", file=sys.stderr)
    print(_signature(opened, metrics, joint, bounds), file=sys.stderr)
    with open_records(output, overwrite) as write, _progress(output) as observe:
        scores = score_records(
            records, opened, word_l2r=WORD_L2R in metrics, joint=joint, observe=observe, bounds=bounds
        )
        count, tokens, unknown, pll = 0, 0, 0, 0.0
        totals = {settings.kind: (0.0, 0.0) for settings in bounds}
        for one in scores:
            write([_as_fields(one, metrics, per_token)])
            count, tokens, pll = count + 1, tokens + len(one.tokens), pll + one.pll
            unknown += one.tokens.count(opened.codec.tokenizer.unk_token)
            for kind, (value, square) in totals.items():
                totals[kind] = value + one.bounds[kind].value, square + one.bounds[kind].error ** 2
    _summarise(count, tokens, pll, totals)
    if unknown:
        print(f"warning: {unknown_tokens(unknown)}", file=sys.stderr)


def _records(
    source: str | None, texts: list[str] | None, fields: Any, format: str | None, prefix: str, suffix: str
) -> Iterator[Record]:
    """The sentences that the options name. Raises `InputError` where they contradict each other."""
    from maskropolis.records import Record, read_records

    if (source is None) == (not texts):
        raise InputError("expected either a FILE (- for standard input) or --text; see maskropolis score --help")
    if (prefix and fields.prefix) or (suffix and fields.suffix):
        raise InputError("a context comes either from a field or from an option, not from both")
    if texts and (fields.prefix or fields.suffix):
        raise InputError("--text has no fields; give its context with --prefix and --suffix")
    records: Iterable[Record]
    if texts:
        records = [Record(text, index, f"--text {index}") for index, text in enumerate(texts, start=1)]
    else:
        records = read_records(str(source), fields, format)
    return _in_context(records, prefix, suffix)


def _in_context(records: Iterable[Record], prefix: str, suffix: str) -> Iterator[Record]:
    from dataclasses import replace

    for record in records:
        yield replace(record, prefix=record.prefix or prefix, suffix=record.suffix or suffix)


def _as_fields(score: SentenceScore, metrics: tuple[str, ...], per_token: bool) -> dict[str, Any]:
    """One output object: the record's own fields, then ours (which win where names meet)."""
    record = score.record
    out: dict[str, Any] = {**record.other, "line": record.line, "text": record.text}
    out |= {name: value for name, value in (("prefix", record.prefix), ("suffix", record.suffix)) if value}
    out["tokens"] = len(score.tokens)
    out |= {metric.replace("-", "_"): _rounded(score.value(metric)) for metric in metrics}
    out |= {f"{name.replace('-', '_')}_error": _rounded(bound.error) for name, bound in score.bounds.items()}
    if per_token:
        columns = {"token": score.tokens, "log_probability": score.log_probabilities, "logit": score.logits}
        if score.word_l2r is not None:
            columns["log_probability_word_l2r"] = score.word_l2r
        listed = zip(*columns.values(), strict=True)
        out["per_token"] = [dict(zip(columns, map(_rounded, values), strict=True)) for values in listed]
    return out


def _rounded(value: Any) -> Any:
    """Six decimals: beyond that single precision has nothing to say."""
    return round(value, 6) if isinstance(value, float) else value


def _signature(model: Any, metrics: tuple[str, ...], joint: str, bounds: list[Settings]) -> str:
    from maskropolis import __version__

    parts = {
        "model": f"{model.name}@{model.fingerprint()[:12]}",
        "metric": ",".join({one.kind: one.signature() for one in bounds}.get(name, name) for name in metrics),
        "dtype": model.dtype,
        "format": model.codec.format,
        "joint": repr(joint),
        "version": __version__,
    }
    for name, usual in (("joint", "' '"), ("format", "text")):
        if parts[name] == usual:
            del parts[name]
    return "maskropolis|" + "|".join(f"{key}:{value}" for key, value in parts.items())


def _summarise(count: int, tokens: int, pll: float, totals: dict[str, tuple[float, float]]) -> None:
    from maskropolis.scoring import pseudo_perplexity

    if not count:
        raise InputError("the input holds no sentences; expected at least one")
    corpus = pseudo_perplexity(pll, tokens)
    print(
        f"{_counted(count, 'sentence')}, {_counted(tokens, 'token')}, pseudo-perplexity of them all {corpus:.4g}",
        file=sys.stderr,
    )
    for kind, (value, square) in totals.items():
        mean, error, most = value / tokens, square**0.5 / tokens, pseudo_perplexity(-value, tokens)
        limit = "" if kind == "denoising" else f", perplexity at most {most:.4g}"
        print(f"{kind}: {mean:.4f} ± {error:.4f} nats a token{limit}", file=sys.stderr)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


@contextlib.contextmanager
def _progress(output: str) -> Iterator[Callable[[int], None]]:
    """A counter of model rows on standard error, if that is a terminal which the results do not use as well."""
    if not sys.stderr.isatty() or (output == "-" and sys.stdout.isatty()):
        yield lambda rows: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from maskropolis.terminal import new_console

    columns = (SpinnerColumn(), TextColumn("scoring  {task.completed:.0f} rows  {task.speed:.0f} rows/s"))
    with Progress(*columns, TimeElapsedColumn(), console=new_console(stderr=True), transient=True) as bar:
        task = bar.add_task("scoring", total=None)
        yield lambda rows: bar.advance(task, rows)
