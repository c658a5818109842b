"""`maskropolis sample --by-sweep`: the states of all chains after every sweep, and what each sweep changed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from maskropolis.chains.preparation import Prepared
    from maskropolis.evaluation.judging.judge import Judge
    from maskropolis.evaluation.moving import Standing

HEADER = f"{'sweep':>5} {'energy':>18} {'perplexity':>11} {'distinct-2':>11} {'self-BLEU':>10}"


def require(by_sweep: bool, judge: str | None, out: str | None, lines: str | None, steps: int | None) -> None:
    """Raises `InputError` for options that contradict each other, before a model is loaded."""
    from maskropolis.errors import InputError

    if judge is not None and not by_sweep:
        raise InputError("--judge belongs to --by-sweep; to judge finished samples use `maskropolis evaluate --judge`")
    for name, value in (("--out", out), ("--from", lines), ("--steps", steps)):
        if by_sweep and value is not None:
            raise InputError(f"{name} does not go with --by-sweep; its length is --samples, its file --output")


def load_judge(name: str | None, **options: Any) -> Judge | None:
    """The judge that is named, if one is. Raises `ModelError`."""
    if name is None:
        return None
    from maskropolis.evaluation.judging.judge import Judge

    return Judge.load(name, **options)


def run(prepared: Prepared, judge: Judge | None, output: str | None, overwrite: bool) -> None:
    """Run sweep by sweep, the start included; a line of figures for each on standard error, all states to `output` or
    the last ones on standard output."""
    from maskropolis.app.outcome import report, show
    from maskropolis.evaluation.moving import Standing
    from maskropolis.records import open_records
    from maskropolis.sampling import run_prepared

    latest: list[dict[str, Any]] = []
    sweep = 0
    with ExitStack() as stack:
        write = None if output is None else stack.enter_context(open_records(output, overwrite))

        def keep(records: list[dict[str, Any]]) -> None:
            nonlocal sweep
            latest[:] = records
            if write is not None:
                write(records)
            texts, energies = [r["text"] for r in records], [r["energy"] for r in records]
            typer.echo(line(sweep, Standing.of(texts, energies, judge)), err=True)
            sweep += 1

        typer.echo(HEADER, err=True)
        keep(start_records(prepared))
        result = run_prepared(prepared, progress=False, keep=keep)
    if output is None:
        show(latest, prepared.model.codec.format)
    if judge is not None:
        typer.echo(judge.signature, err=True)
    report(result)


def start_records(prepared: Prepared) -> list[dict[str, Any]]:
    """The states before the first step, as records of step 0."""
    from maskropolis.chains.running import energies
    from maskropolis.targets.energy import energy_by_name

    sequences, wanted = prepared.state.sequences, prepared.kernel.energy or energy_by_name(prepared.config.energy)
    energy = prepared.state.energy
    if prepared.state.evaluation is None:
        energy = energies(prepared.model, wanted, sequences)
    common = {"step": 0, "temperature": prepared.plan.schedule(0), "accepted": False}
    columns = prepared.chains.tolist(), prepared.model.codec.decode(sequences), energy.tolist()
    lengths, rows = sequences.lengths.tolist(), sequences.tokens.tolist()
    return [
        {"chain": chain, "text": text, "token_ids": row[:length], "energy": value, **common}
        for chain, text, value, row, length in zip(*columns, rows, lengths, strict=True)
    ]


def line(sweep: int, found: Standing) -> str:
    """One line under `HEADER`; a dash where a number cannot be had."""
    energy = f"{found.energy:.2f} ± {found.error:.2f}".replace(" ± nan", "")
    others = (found.perplexity, 11, ".1f"), (found.distinct, 11, ".3f"), (found.self_bleu, 10, ".1f")
    cells = [f"{'–' if value != value else format(value, shape):>{width}}" for value, width, shape in others]
    return " ".join([f"{sweep:>5}", f"{energy:>18}", *cells])
