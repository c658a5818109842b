"""One chain from each of many lines: the lines are taken in portions, so that memory does not grow with their number.

Line n is chain n − 1, and its random numbers are those of that chain, as if all lines were one run. The chains of a
portion make as many steps as the sweeps of its longest line take, or the number that is set. Portions are counted from
the first line, so that a job which goes on at one of them gives what it would have given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from maskropolis.chains.configuration import SamplingConfig
from maskropolis.chains.preparation import prepare, signature_of
from maskropolis.chains.progress import Progress
from maskropolis.chains.running import steps
from maskropolis.chains.stopping import StopSignals
from maskropolis.chains.totals import Totals
from maskropolis.errors import InputError
from maskropolis.kernels.base import Kernel, adapting_steps
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.records import Record

PORTION = 64
"""Lines that run together."""


@dataclass
class Portion:
    """What some lines that ran together left.

    Attributes:
        first: lines before them. lines: how many they are.
        records: of the kept states, the lines in order, each line's states in theirs; with the name of the line, if it
            has one.
        totals: of these lines.
        stopped_by: the signal that ended the run in this portion; then it has no records.
    """

    first: int
    lines: int
    records: list[dict[str, Any]]
    totals: Totals
    stopped_by: int | None = None


def portions(
    model: HuggingFaceMaskedLM,
    config: SamplingConfig,
    kernel: Kernel,
    lines: Iterable[Record],
    first: int = 0,
    progress: bool | None = None,
) -> Iterator[Portion]:
    """Run chains from `lines`, before which there were `first`, a multiple of `PORTION`; one portion in memory.

    `config` says how, whatever it says of starts and chains; `kernel` is its kernel. Ends with Ctrl-C or SIGTERM.
    Raises `InputError` that names the line which cannot be a start, when all portions before it have been given.
    """
    if first % PORTION:
        raise InputError(f"{first} lines are no whole number of portions; expected a multiple of {PORTION}")
    left = iter(lines)
    while taken := list(itertools.islice(left, PORTION)):
        for record in taken:
            if model.mask_token in model.codec.ids(record.text, record.where):
                raise InputError(f"{record.where} holds a mask token; expected a complete text to start from")
        portion = _run(model, config, kernel, taken, first, progress)
        yield portion
        if portion.stopped_by:
            return
        first += len(taken)


def _run(
    model: HuggingFaceMaskedLM,
    config: SamplingConfig,
    kernel: Kernel,
    taken: list[Record],
    first: int,
    progress: bool | None,
) -> Portion:
    here = replace(config, texts=tuple(record.text for record in taken), chains=len(taken))
    portion = Portion(first, len(taken), [], Totals())
    prepared = prepare(model, here, kernel, first)
    portion.totals.notices.extend(prepared.notices)
    what = f"lines {first + 1} to {first + len(taken)}"
    with StopSignals() as stop, Progress(prepared.plan.steps, progress, what) as display:
        for step in steps(prepared):
            portion.totals.count(step.tick, step.seconds)
            portion.totals.notices.extend(step.notices)
            portion.records += step.records
            display.show(step.tick, portion.totals.acceptance_rate)
            if stop.received and step.tick.step < prepared.plan.steps:
                return Portion(first, len(taken), [], portion.totals, stop.received)
    portion.records.sort(key=lambda record: record["chain"])
    for record in portion.records:
        name = taken[record["chain"] - first].other.get("name")
        if name:
            record["name"] = str(name)
    return portion


def portions_signature(model: HuggingFaceMaskedLM, config: SamplingConfig, kernel: Kernel) -> str:
    """As that of a run, but that the number of lines and, unless it is set, that of steps is left open."""
    sweeps = f"(burn-in {config.burn_in:g}, thin {config.thin:g} sweeps) x {config.samples}"
    length = f"{config.steps}{sweeps}" if config.steps else sweeps
    chains = f"one a line, {PORTION} together"
    made = signature_of(model, config, kernel, config.make_schedule(config.steps or 1), chains, length)
    return made + "".join(f"|fixed:{span}" for span in config.fixed)


def require_lines(config: SamplingConfig) -> None:
    """Raises `InputError` if the chains are to start from something else as well."""
    if config.lengths or config.templates or config.texts:
        raise InputError("expected lines, or one of length, template and text, to start from; got both")


def require_enough_burn_in(config: SamplingConfig, kernel: Kernel) -> None:
    """Raises `InputError` if the kernel may still adapt when states are kept; a sweep of a short line is one step."""
    adapting = adapting_steps(kernel)
    if adapting > config.burn_in:
        raise InputError(
            f"with lines of any length, adapt={adapting} needs a burn-in of at least {adapting} sweeps; "
            f"it is {config.burn_in:g}"
        )
