"""`maskropolis sample`: sentences from the distribution that a masked language model implicitly is."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskropolis.app import model_options as options

if TYPE_CHECKING:
    from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
    from maskropolis.sampling import Prepared, SamplingConfig

_START, _TARGET, _STEERING = "Start", "Target", "Steering"
_KERNEL, _LENGTH, _DIFFUSION, _OUTPUT = "Kernel", "How long", "Diffusion", "Output"


def register(application: typer.Typer) -> None:
    application.command("sample")(sample)


def _option(panel: str, *names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel)


def sample(
    model: options.Model = None,
    tokenizer: options.Tokenizer = None,
    length: Annotated[
        str | None,
        _option(
            _START, "--length", "-l", metavar="N[,N…]", help="Free tokens; several lengths take turns. [default: 12]"
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        _option(_START, "--template", "-t", metavar="TEXT", help="Text with [MASK] where tokens are free; repeatable."),
    ] = None,
    text: Annotated[
        list[str] | None, _option(_START, "--text", metavar="TEXT", help="Start from this text; repeatable.")
    ] = None,
    lines: Annotated[
        str | None,
        _option(_START, "--from", metavar="FILE", help="One chain from each line or record of a file; - for stdin."),
    ] = None,
    format: Annotated[
        str | None,
        _option(_START, "--format", metavar="NAME", help="text, fasta, smiles or tokens. [default: by suffix]"),
    ] = None,
    fix: Annotated[
        list[str] | None,
        _option(_START, "--fix", metavar="SPAN", help="A span of --text that must not change; repeatable."),
    ] = None,
    start: Annotated[
        str,
        _option(_START, "--start", metavar="HOW", help="What masks begin with: greedy, sampled, random or diffusion."),
    ] = "greedy",
    chains: Annotated[int, _option(_START, "--chains", "-c", help="Independent chains.")] = 8,
    energy: Annotated[str, _option(_TARGET, "--energy", "-e", metavar="NAME", help="norm or raw.")] = "norm",
    temperature: Annotated[float, _option(_TARGET, "--temperature", "-T", help="τ in exp(−E/τ).")] = 1.0,
    final_temperature: Annotated[
        float | None, _option(_TARGET, "--final-temperature", help="Anneal from --temperature to this.")
    ] = None,
    schedule: Annotated[
        str,
        _option(_TARGET, "--schedule", metavar="SHAPE", help="constant, linear, geometric (if annealing) or cosine."),
    ] = "constant",
    expert: Annotated[
        list[str] | None,
        _option(
            _STEERING,
            "--expert",
            metavar="KIND:…:WEIGHT",
            help="An energy to add, e.g. keyword:sea:5, classifier:DIR:LABEL:2, python:MODULE:FUNCTION:1; repeatable.",
        ),
    ] = None,
    require: Annotated[
        list[str] | None, _option(_STEERING, "--require", metavar="WORD", help="A word in every text; repeatable.")
    ] = None,
    forbid: Annotated[
        list[str] | None, _option(_STEERING, "--forbid", metavar="WORD", help="A word in no text; repeatable.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        _option(
            _STEERING,
            "--allow",
            metavar="[POSITIONS:]SET",
            help="Free tokens from a set: letters, words, digits, amino, =a,b or @FILE; e.g. 2-5:digits; repeatable.",
        ),
    ] = None,
    no_repeat: Annotated[
        int | None, _option(_STEERING, "--no-repeat", metavar="N", help="No N tokens in a row twice.")
    ] = None,
    kernel: Annotated[
        str | None,
        _option(
            _KERNEL,
            "--kernel",
            "-k",
            metavar="NAME[:KEY=VALUE,…]",
            help="How to move; `maskropolis kernels` lists them. [default: single-site]",
        ),
    ] = None,
    scan: Annotated[
        str | None,
        _option(_KERNEL, "--scan", metavar="ORDER", help="random, left-to-right, right-to-left or back-and-forth."),
    ] = None,
    block_size: Annotated[int | None, _option(_KERNEL, "--block-size", help="Positions in a block.")] = None,
    contiguous: Annotated[bool, _option(_KERNEL, "--contiguous", help="Blocks of neighbours.")] = False,
    proposal_temperature: Annotated[
        float | None, _option(_KERNEL, "--proposal-temperature", help="Temperature of the proposal. [default: 1]")
    ] = None,
    offset_from: Annotated[
        str | None,
        _option(_KERNEL, "--offset-from", metavar="FILE", help="resize: estimate its offset a token from these lines."),
    ] = None,
    top_k: Annotated[int | None, _option(_KERNEL, "--top-k", help="Propose only the k likeliest tokens.")] = None,
    burn_in: Annotated[float, _option(_LENGTH, "--burn-in", help="Sweeps before the first kept state.")] = 15,
    thin: Annotated[float, _option(_LENGTH, "--thin", help="Sweeps between kept states.")] = 5,
    samples: Annotated[int, _option(_LENGTH, "--samples", "-n", help="Kept states a chain.")] = 1,
    steps: Annotated[
        int | None,
        _option(
            _LENGTH, "--steps", help="Total steps, instead of burn-in + samples x thin; or steps of the diffusion."
        ),
    ] = None,
    method: Annotated[
        str,
        _option(
            _DIFFUSION, "--method", metavar="NAME", help="mh, or without target: diffusion, mask-predict, langevin."
        ),
    ] = "mh",
    sampler: Annotated[
        str | None,
        _option(
            _DIFFUSION,
            "--sampler",
            metavar="NAME",
            help="ancestral, first-hitting, maskgit, low-confidence, margin or entropy. [default: ancestral]",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        _option(
            _DIFFUSION,
            "--noise",
            metavar="NAME",
            help="log-linear, linear, cosine, polynomial:power=P or d3pm. [default: log-linear]",
        ),
    ] = None,
    top_p: Annotated[float | None, _option(_DIFFUSION, "--top-p", help="Draw from this share of the mass.")] = None,
    remasking: Annotated[
        str | None,
        _option(_DIFFUSION, "--remask", metavar="HOW=η", help="ancestral: mask again, cap=0.1 or rescale=0.1."),
    ] = None,
    choice_temperature: Annotated[
        float | None, _option(_DIFFUSION, "--choice-temperature", help="Noise in the order of the surest.")
    ] = None,
    levels: Annotated[
        int | None, _option(_DIFFUSION, "--levels", help="langevin: noise levels that share --steps. [default: 32]")
    ] = None,
    step_size: Annotated[
        float | None, _option(_DIFFUSION, "--step-size", metavar="η", help="langevin: of σ². [default: 0.5]")
    ] = None,
    sigmas: Annotated[
        tuple[float, float] | None,
        _option(_DIFFUSION, "--sigmas", help="langevin: highest and lowest noise. [default: the model's]"),
    ] = None,
    decode: Annotated[
        str | None, _option(_DIFFUSION, "--decode", metavar="HOW", help="langevin: likeliest or nearest token.")
    ] = None,
    seed: Annotated[int, _option(_LENGTH, "--seed", "-s", help="Seed of all random numbers.")] = 0,
    output: Annotated[
        str | None,
        _option(_OUTPUT, "--output", "-o", metavar="FILE", help="JSONL or, by suffix, Parquet; - for stdout."),
    ] = None,
    out: Annotated[
        str | None,
        _option(
            _OUTPUT,
            "--out",
            metavar="RUN",
            help="Folder for the whole run: samples, trace and checkpoints; `maskropolis resume` goes on with it.",
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None, _option(_OUTPUT, "--checkpoint-every", metavar="STEPS", help="Steps between checkpoints of --out.")
    ] = None,
    resume: Annotated[
        bool, _option(_OUTPUT, "--resume", help="Go on with the partial --output of --from FILE.")
    ] = False,
    by_sweep: Annotated[
        bool, _option(_OUTPUT, "--by-sweep", help="Show what each of --samples sweeps changes, from the start on.")
    ] = False,
    judge: Annotated[
        str | None,
        _option(_OUTPUT, "--judge", metavar="NAME|DIR|GGUF", help="Of --by-sweep: a causal model, for perplexity."),
    ] = None,
    overwrite: Annotated[bool, _option(_OUTPUT, "--overwrite", help="Replace an existing output or run.")] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    compile: options.Compile = False,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
    token_budget: options.TokenBudget = None,
) -> None:
    """Draw correct samples from a masked language model by Metropolis–Hastings.

    The target is exp(−E(x)/τ) over the free tokens. A sweep visits each of them once on average. Without --out, --from
    takes any number of lines and gives their samples in order as they come; with it, they are one run. With --method
    diffusion, masks are filled by the reverse of a masked diffusion instead (--block-size: left to right in blocks);
    with --method langevin by the score of a model trained with gaussian-dae.
    """
    if method != "mh":
        return _generate(locals())
    from maskropolis.app import line_sampling, sweeps
    from maskropolis.sampling import SamplingConfig, prepare

    sweeps.require(by_sweep, judge, out, lines, steps)
    line_sampling.require_resumable(resume, lines, output)
    _check_outputs(None if resume else output, out, checkpoint_every, overwrite, lines)
    alphabet = _alphabet(format, lines, output)
    streamed = None if lines is None or out is not None else line_sampling.read(lines, alphabet, length, template, text)
    texts, names = (tuple(text or ()), ()) if lines is None or streamed else _texts(lines, text, alphabet)
    config = SamplingConfig(
        lengths=_numbers(length),
        templates=tuple(template or ()),
        texts=texts,
        names=names,
        fixed=tuple(fix or ()),
        chains=chains if lines is None else max(1, len(texts)),
        start=start,
        energy=energy,
        experts=tuple(expert or ()),
        require=tuple(require or ()),
        forbid=tuple(forbid or ()),
        allow=tuple(allow or ()),
        no_repeat=no_repeat,
        kernel=_with_settings(
            kernel,
            scan=scan,
            k=block_size,
            contiguous=contiguous or None,
            proposal_temperature=proposal_temperature,
            top_k=top_k,
        ),
        temperature=temperature,
        final_temperature=final_temperature,
        schedule=schedule,
        burn_in=0 if by_sweep else burn_in,
        thin=1 if by_sweep else thin,
        samples=samples,
        steps=steps,
        seed=seed,
    )
    opened = options.open_model(
        model, tokenizer, device, dtype, allow_pickle, trust_remote_code, token_budget, alphabet, compile
    )
    if offset_from is not None:
        config = _with_offset(opened, config, offset_from)
    if streamed is not None:
        return line_sampling.run(opened, config, streamed, output, resume, overwrite)
    judging = sweeps.load_judge(judge, device=device, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
    prepared = prepare(opened, config)
    if by_sweep:
        sweeps.run(prepared, judging, output, overwrite)
    elif out is None:
        _run_in_memory(prepared, output, overwrite)
    else:
        _run_in_folder(prepared, out, overwrite, checkpoint_every)


def _generate(given: dict[str, Any]) -> None:
    """`--method diffusion`, `mask-predict` or `langevin`, with the options `given` to `sample`."""
    from maskropolis.app import generation

    named = {name: given[name] for name in ("text", "lines", "fix", "kernel", "scan", "contiguous", "expert")}
    named |= {name: given[name] for name in ("require", "forbid", "allow", "no_repeat", "final_temperature")}
    named |= {name: given[name] for name in ("proposal_temperature", "top_k", "out", "checkpoint_every", "resume")}
    named |= {name: given[name] for name in ("offset_from", "by_sweep", "judge")}
    foreign = {f"--{'from' if name == 'lines' else name.replace('_', '-')}": value for name, value in named.items()}
    _check_outputs(given["output"], None, None, given["overwrite"])
    settings: dict[str, Any] = {name: given[name] for name in ("sampler", "noise", "top_p", "remasking")}
    settings |= {name: given[name] for name in ("levels", "step_size", "sigmas", "decode")}
    settings |= {
        name: given[name] for name in ("choice_temperature", "chains", "energy", "temperature", "steps", "seed")
    }
    settings |= {"lengths": _numbers(given["length"]), "templates": tuple(given["template"] or ())}
    config = generation.configuration(given["method"], settings | {"block": given["block_size"]}, foreign)
    names = ("model", "tokenizer", "device", "dtype", "allow_pickle", "trust_remote_code", "token_budget", "compile")
    alphabet = _alphabet(given["format"], None, given["output"])
    opened = options.open_model(**{name: given[name] for name in names}, format=alphabet)
    generation.run(opened, config, given["output"], given["overwrite"])


def _check_outputs(
    output: str | None, out: str | None, checkpoint_every: int | None, overwrite: bool, lines: str | None = None
) -> None:
    """What can be refused before the model is loaded."""
    from pathlib import Path

    from maskropolis.errors import InputError
    from maskropolis.records import check_output
    from maskropolis.runs.resuming import require_free

    if output is not None and out is not None:
        raise InputError("expected one of --out (a run folder) and --output (a file of samples); got both")
    if checkpoint_every is not None and (out is None or checkpoint_every < 1):
        raise InputError("--checkpoint-every expects at least 1 step and a run folder, --out")
    if output is not None:
        check_output(output, overwrite, lines)
    if out is not None:
        require_free(Path(out), overwrite)


def _alphabet(format: str | None, lines: str | None, output: str | None) -> str:
    """The format named, or the one that a suffix tells."""
    from maskropolis.errors import unknown_name
    from maskropolis.records import ALPHABETS, alphabet_of

    if format is not None and format not in ALPHABETS:
        raise unknown_name("format", format, ALPHABETS)
    return format or max(alphabet_of(lines, None), alphabet_of(output, None), key=lambda found: found != "text")


def _texts(lines: str, text: list[str] | None, format: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of a file, none of them empty, and their names if it has some: for a run that holds them all."""
    from itertools import islice

    from maskropolis.app.line_sampling import MOST_IN_A_RUN, read
    from maskropolis.errors import InputError

    records = list(islice(read(lines, format, None, None, text), MOST_IN_A_RUN + 1))
    if len(records) > MOST_IN_A_RUN:
        raise InputError(
            f"'{lines}' has more than {MOST_IN_A_RUN} lines, and the chains of a run folder are in memory together; "
            "give --output FILE instead of --out: it takes any number of lines, and --resume goes on with it"
        )
    names = tuple(str(record.other.get("name") or f"line_{record.line}") for record in records)
    named = any(record.other.get("name") for record in records)
    return tuple(record.text for record in records), names if named else ()


def _run_in_memory(prepared: Prepared, output: str | None, overwrite: bool) -> None:
    from maskropolis.app.outcome import named, report, show
    from maskropolis.records import open_records
    from maskropolis.sampling import run_prepared

    names = prepared.config.names
    with ExitStack() as stack:
        write = None if output is None else stack.enter_context(open_records(output, overwrite))
        result = run_prepared(prepared, keep=None if write is None else lambda records: write(named(records, names)))
    if output is None:
        show(named(result.records, names), prepared.model.codec.format)
    report(result)


def _run_in_folder(prepared: Prepared, out: str, overwrite: bool, checkpoint_every: int | None) -> None:
    from maskropolis.app.outcome import report_run
    from maskropolis.sampling import record

    report_run(record(prepared, out, overwrite, checkpoint_every))


def _numbers(text: str | None) -> tuple[int, ...]:
    from maskropolis.errors import InputError

    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"length {json.dumps(text)} is malformed; expected whole numbers such as 12 or 8,12,16"
        ) from None


def _with_offset(model: HuggingFaceMaskedLM, config: SamplingConfig, source: str) -> SamplingConfig:
    """The configuration with the offset that the lines of a file give, said on standard error."""
    from dataclasses import replace

    from maskropolis.errors import InputError
    from maskropolis.infilling import offset_of_texts
    from maskropolis.records import Fields, read_records

    if config.kernel.partition(":")[0] != "resize" or "offset=" in config.kernel:
        raise InputError("--offset-from sets the offset of --kernel resize, which may not be given as well")
    texts = [record.text for record in read_records(source, Fields(skip_empty=True))]
    if not texts:
        raise InputError(f"the file '{source}' has no lines; expected texts of several lengths")
    offset = offset_of_texts(model, config.energy, texts)
    typer.echo(f"offset {offset:g} nats a token: the slope of E over n on {len(texts)} texts", err=True)
    return replace(config, kernel=_with_settings(config.kernel, offset=offset))


def _with_settings(kernel: str | None, **settings: Any) -> str:
    """The kernel specification with the settings that were given as options of their own."""
    given = ",".join(f"{key}={value}" for key, value in settings.items() if value is not None)
    if kernel is None:
        block = settings["k"] is not None or settings["contiguous"]
        kernel = "block" if block else "single-site"
    if not given:
        return kernel
    if kernel.endswith(")") and ":" not in kernel:
        return f"{kernel[:-1]},{given})"
    return f"{kernel}{',' if ':' in kernel else ':'}{given}"
