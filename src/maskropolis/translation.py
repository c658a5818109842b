"""Translation by conditional masked language models: the verb `translate`, streamed, in order, with bounded memory.

A translation y of x has the energy E(y | x) of `maskropolis.targets.energy` under p_t(y_t | y_∖t, x). Mask-Predict
fills it in a few rounds; Metropolis–Hastings on that energy, annealed, looks for its low states. Ghazvininejad et al.
(2019); Goyal, Dyer & Berg-Kirkpatrick (2022), section 5.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from maskropolis import __version__
from maskropolis.decoders.beam import AutoregressiveTranslator, load_autoregressive
from maskropolis.errors import InputError, unknown_name
from maskropolis.models.conditional.loading import is_autoregressive, load_conditional
from maskropolis.models.conditional.protocol import Conditional
from maskropolis.models.conditional.text import listed
from maskropolis.searching.hypotheses import Decoding, Found, Hypothesis, OnSweep, Work, decode
from maskropolis.searching.modes import Search

__all__ = [
    "CHUNK",
    "Decoding",
    "Hypothesis",
    "Line",
    "Search",
    "Translation",
    "Work",
    "load_translator",
    "signature",
    "translate",
    "translate_lines",
]

CHUNK = 128
"""Sources translated together: room for full forward passes, bounded memory. Results do not depend on it."""


@dataclass(frozen=True)
class Line:
    """One source, its number from 1, how an error names it, and a hypothesis to start from if there is one."""

    number: int
    text: str
    where: str
    given: str | None = None


@dataclass(frozen=True)
class Candidate:
    """One translation as text, its number of tokens, its energy and mean log-probability if they are known."""

    text: str
    tokens: int
    energy: float | None = None
    score: float | None = None


@dataclass(frozen=True)
class Translation:
    """Of one source: candidates, the answer first (none for an empty source), and samples if they were asked for."""

    line: Line
    candidates: list[Candidate]
    samples: list[Candidate] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.candidates[0].text if self.candidates else ""

    @property
    def energy(self) -> float | None:
        return self.candidates[0].energy if self.candidates else None


Notify = Callable[[str], None]


def translate(
    texts: str | Sequence[str], model: Conditional | str, *, given: Sequence[str] | None = None, **settings: Any
) -> list[Translation]:
    """Translate one or many sentences: `translate("ein hund .", "my-model", decoder="mh")[0].text`.

    `model` is a loaded conditional model or the folder of one. `settings` are the fields of `Decoding` and `Search`:
    decoder, iterations, length_beam, start, kernel, energy, sweeps, temperature, final_temperature, …. `given` are
    hypotheses to start from, one a source. Raises `InputError` naming the sentence at fault.
    """
    listed = [texts] if isinstance(texts, str) else list(texts)
    if given is not None and len(given) != len(listed):
        raise InputError(f"{len(given)} hypotheses for {len(listed)} sources; expected one for each")
    if given is not None:
        settings = {"start": "given", "decoder": "mh", **settings}
    opened = load_conditional(model) if isinstance(model, str) else model
    starts: Sequence[str | None] = given if given is not None else [None] * len(listed)
    pairs = zip(listed, starts, strict=True)
    lines = [Line(n, text, f"sentence {n}", start) for n, (text, start) in enumerate(pairs, start=1)]
    return list(translate_lines(lines, opened, make_decoding(**settings)))


def load_translator(name: str, *, beam: int = 5, **options: Any) -> Conditional | AutoregressiveTranslator:
    """The translation model in the folder `name`, conditional or autoregressive (then decoded with `beam`).

    `options` are those of `load_conditional`: device, dtype, separator, length_ratio, trust_remote_code. Raises
    `ModelError`.
    """
    if is_autoregressive(name):
        some = {key: value for key, value in options.items() if key in ("device", "dtype", "trust_remote_code")}
        return load_autoregressive(name, beam, **some)
    return load_conditional(name, **options)


def make_decoding(**settings: Any) -> Decoding:
    """A `Decoding` from its own fields and those of its search. Raises `InputError` for unknown names."""
    own, inner = Decoding.__dataclass_fields__, Search.__dataclass_fields__
    for name in settings:
        if name not in own and name not in inner:
            raise unknown_name("setting", name, [*own, *inner])
    search = Search(**{key: value for key, value in settings.items() if key in inner})
    return Decoding(**{"search": search} | {key: value for key, value in settings.items() if key in own})


def translate_lines(
    lines: Iterable[Line],
    model: Conditional | AutoregressiveTranslator,
    decoding: Decoding,
    *,
    chunk: int = CHUNK,
    skip_bad: bool = False,
    notify: Notify = lambda message: None,
    observe: Callable[[Work], None] = lambda work: None,
    on_sweep: Callable[[Line, int, Candidate], None] | None = None,
) -> Iterator[Translation]:
    """Stream translations in the order of the sources, `chunk` sources at a time.

    An empty source gives a translation without candidates. A source that cannot be translated raises `InputError` after
    all before it were yielded; with `skip_bad` it counts as empty and `notify` is told. `notify` is also told of
    characters that the vocabulary does not know, `observe` of the work of each chunk. Where `lines` itself raises, what
    came before is translated first.
    """
    remaining = iter(lines)
    while True:
        some, broken = _taken(remaining, chunk)
        sources, failure = _encoded(some, model, decoding, skip_bad, notify)
        found, work = _translate(sources, model, decoding, on_sweep)
        for line in some[: len(some) if failure is None else some.index(failure[0])]:
            yield found.get(line.number, Translation(line, []))
        if some:
            observe(work)
        if failure is not None:
            raise failure[1]
        if broken is not None:
            raise broken
        if len(some) < chunk:
            return


def _taken(lines: Iterator[Line], count: int) -> tuple[list[Line], InputError | None]:
    """Up to `count` lines, and the error that ended them if there was one."""
    taken: list[Line] = []
    try:
        taken.extend(itertools.islice(lines, count))  # keeps what came before an error
    except InputError as error:
        return taken, error
    return taken, None


@dataclass(frozen=True)
class _Encoded:
    line: Line
    source: list[int]
    given: list[int] | None


def _encoded(
    lines: Sequence[Line], model: Any, decoding: Decoding, skip_bad: bool, notify: Notify
) -> tuple[list[_Encoded], tuple[Line, InputError] | None]:
    """The sources that are not empty, up to the first that cannot be translated."""
    encoded: list[_Encoded] = []
    for line in lines:
        if not line.text.strip():
            continue
        try:
            encoded.append(_encode(line, model, decoding, notify))
        except InputError as error:
            if not skip_bad:
                return encoded, (line, error)
            notify(f"{error}; left empty")
    return encoded, None


def _encode(line: Line, model: Any, decoding: Decoding, notify: Notify) -> _Encoded:
    source = model.source_ids(line.text, line.where)
    if unknown := model.unknown(line.text):
        notify(f"{line.where}: the model does not know {listed(unknown)}; read as unknown")
    if decoding.start != "given" or decoding.decoder == "mask-predict" or line.given is None:
        return _Encoded(line, source, None)
    where = f"the hypothesis for {line.where}"
    given = model.target_ids(line.given, where)
    if unknown := model.unknown(line.given):
        raise InputError(f"{where} has parts that the model does not know ({listed(unknown)}); replace them")
    return _Encoded(line, source, given)


def _translate(
    sources: Sequence[_Encoded],
    model: Any,
    decoding: Decoding,
    on_sweep: Callable[[Line, int, Candidate], None] | None,
) -> tuple[dict[int, Translation], Work]:
    """Translations by line number."""
    if not sources:
        return {}, Work()
    ids = [one.source for one in sources]
    if isinstance(model, AutoregressiveTranslator):
        best = [[Hypothesis(tuple(t), None, s) for t, s in of_one] for of_one in model.translate(ids)]
        found = Found(best, [[] for _ in best], Work(sources=len(best)))
    else:
        watch: OnSweep | None = None
        if on_sweep is not None:
            told = on_sweep

            def watch(source: int, sweep: int, hypothesis: Hypothesis) -> None:
                told(sources[source].line, sweep, _candidate(model, hypothesis))

        given = [one.given for one in sources if one.given is not None] or None
        found = decode(model.bind(ids), [one.line.number for one in sources], decoding, given, watch)
    texts = {
        one.line.number: Translation(
            one.line, [_candidate(model, h) for h in best], [_candidate(model, h) for h in samples]
        )
        for one, best, samples in zip(sources, found.best, found.samples, strict=True)
    }
    return texts, found.work


def _candidate(model: Any, hypothesis: Hypothesis) -> Candidate:
    return Candidate(model.text(hypothesis.tokens), len(hypothesis.tokens), hypothesis.energy, hypothesis.score)


def signature(model: Any, decoding: Decoding) -> str:
    """One line that says how translations are made."""
    how = model.signature() if isinstance(model, AutoregressiveTranslator) else decoding.signature()
    return f"maskropolis|model:{model.name}@{model.fingerprint()[:12]}|{how}|version:{__version__}"
