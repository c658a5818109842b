"""`maskropolis rescore`: rank n-best lists by the energy of a conditional masked language model."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from maskropolis.app import model_options
from maskropolis.errors import InputError


def register(application: typer.Typer) -> None:
    application.command("rescore")(rescore)


def rescore(
    n_best: Annotated[str, typer.Argument(metavar="FILE", help="N-best lists: .jsonl of translate, or Moses' form.")],
    model: Annotated[str, typer.Option("--model", "-m", metavar="DIR", help="Folder of a conditional model.")],
    source: Annotated[str | None, typer.Option(metavar="FILE", help="The sources, if the lists lack them.")] = None,
    energy: Annotated[str, typer.Option(help="raw or norm.")] = "norm",
    per_token: Annotated[bool, typer.Option("--per-token/--total", help="Divide energies by tokens.")] = True,
    weight: Annotated[
        float | None, typer.Option(help="Rank by score − weight·energy; without it by energy alone.")
    ] = None,
    tune: Annotated[
        str | None, typer.Option(metavar="FILE", help="N-best lists of a development set: finds the best weight.")
    ] = None,
    tune_source: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its sources, if the lists lack them.")
    ] = None,
    tune_reference: Annotated[str | None, typer.Option(metavar="FILE", help="Its reference translations.")] = None,
    reference: Annotated[str | None, typer.Option(metavar="FILE", help="Score the best against it.")] = None,
    separator: Annotated[str | None, typer.Option(help="Use a plain masked model; see translate.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="The best, one a line; .jsonl: ranked lists.")] = "-",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    device: model_options.Device = "auto",
    dtype: model_options.Dtype = "float32",
    trust_remote_code: model_options.TrustRemoteCode = False,
) -> None:
    """Rank given translations by their energy, alone or added to the scores that they came with.

    \b
    maskropolis rescore test.jsonl -m de-en -o ranked.jsonl
    maskropolis rescore test.jsonl -m de-en --tune dev.jsonl --tune-reference dev.en
    """
    if weight is not None and tune is not None:
        raise InputError("a weight is either given or tuned; expected one of --weight and --tune")
    if (tune is None) != (tune_reference is None):
        raise InputError("--tune needs --tune-reference, the translations to tune towards, and the other way round")
    if weight is not None and weight < 0:
        raise InputError(f"the weight is {weight:g}; expected 0 or more")

    from maskropolis.models.conditional.loading import load_conditional
    from maskropolis.records import check_output, open_output
    from maskropolis.searching.rescoring import as_fields, rank, read_n_best, with_energies
    from maskropolis.targets.energy import energy_by_name

    check_output(output, overwrite)
    wanted = energy_by_name(energy)
    lists = read_n_best(n_best, _all(source))
    references = _all(reference)
    opened = load_conditional(
        model, device=device, dtype=dtype, separator=separator, trust_remote_code=trust_remote_code
    )
    if tune is not None:
        weight = _tuned(opened, wanted, per_token, tune, tune_source, str(tune_reference))
    best: dict[int, str] = {}
    with open_output(output, overwrite) as stream:
        for one in with_energies(lists, opened, wanted, notify=_warn):
            ranked = rank(one, weight, per_token)
            best[one.number] = ranked.candidates[0].text if ranked.candidates else ""
            line = best[one.number]
            if output.endswith(".jsonl"):
                line = json.dumps(as_fields(ranked, weight, per_token), ensure_ascii=False)
            stream.write(f"{line}\n".encode())
    _report(opened, energy, per_token, weight)
    if references is not None:
        _score(best, references)


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _all(path: str | None) -> list[str] | None:
    from maskropolis.records import read_lines

    return None if path is None else [text for _, text in read_lines(path)]


def _tuned(model: Any, energy: Any, per_token: bool, path: str, source: str | None, reference: str) -> float:
    from maskropolis.searching.rescoring import feature, read_n_best, scores_of, with_energies
    from maskropolis.searching.tuning import tune

    references = _all(reference) or []
    lists = [one for one in with_energies(read_n_best(path, _all(source)), model, energy) if one.candidates]
    if any(one.number > len(references) for one in lists):
        raise InputError(f"'{path}' has lists for more sources than '{reference}' has lines ({len(references)})")
    lists = [one for one in lists if one.candidates[0].energy is not None]
    found = tune(
        [[c.text for c in one.candidates] for one in lists],
        [scores_of(one) for one in lists],
        [[feature(c, per_token) for c in one.candidates] for one in lists],
        [references[one.number - 1] for one in lists],
    )
    print(
        f"tuned on {len(lists)} lists: weight {found.weight:.6g}, BLEU {found.bleu:.2f} "
        f"(by the scores {found.before:.2f}, by energy alone {found.alone:.2f})",
        file=sys.stderr,
    )
    return found.weight


def _report(model: Any, energy: str, per_token: bool, weight: float | None) -> None:
    from maskropolis import __version__

    ranked = "energy" if weight is None else f"score-{weight:.6g}*energy"
    each = "per-token" if per_token else "total"
    made = f"model:{model.name}@{model.fingerprint()[:12]}|energy:{energy}({each})|rank:{ranked}"
    print(f"maskropolis|{made}|version:{__version__}", file=sys.stderr)


def _score(best: dict[int, str], references: list[str]) -> None:
    from maskropolis.searching.quality import FORMS, quality

    texts = [best.get(number, "") for number in range(1, len(references) + 1)]
    for form in FORMS:
        found = quality(texts, references, form)
        print(f"{form}: BLEU {found.bleu:.2f}, chrF {found.chrf:.2f}  {found.signature}", file=sys.stderr)
