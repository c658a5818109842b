"""Where chains begin: blanks of given lengths, templates, or texts, shared out over the chains in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from maskropolis.decoders.constrained import fill_constrained
from maskropolis.decoders.diffusion.first_hitting import FirstHitting
from maskropolis.decoders.diffusion.reverse import diffuse, stream_source
from maskropolis.decoders.fill import FILLS, fill, require_allowed
from maskropolis.errors import InputError, unknown_name
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.text.codec import LITERAL_MASK, unknown_tokens
from maskropolis.randomness import START, Streams
from maskropolis.sequences import Sequences, concatenate
from maskropolis.targets.energy import Energy
from maskropolis.targets.steered import steering

STARTS = (*FILLS, "diffusion")
"""How masks are filled before a chain begins; `diffusion`: one token at a time, by first-hitting sampling."""


def blank_chains(
    model: HuggingFaceMaskedLM,
    chains: int,
    *,
    lengths: Sequence[int] = (),
    templates: Sequence[str] = (),
    texts: Sequence[str] = (),
    fixed: Sequence[str] = (),
    how: str = "greedy",
) -> Sequences:
    """`chains` rows, masks not filled yet. Exactly one of `lengths`, `templates`, `texts` must be given; its entries
    take turns.

    `fixed` are spans of the texts that must not change. `how` is only checked to be one of `STARTS`. Raises
    `InputError` for anything malformed; the model is not run.
    """
    given = [name for name, value in (("length", lengths), ("template", templates), ("text", texts)) if value]
    if len(given) != 1:
        raise InputError(f"expected one of length, template or text; got {' and '.join(given) or 'none'}")
    if fixed and not texts:
        raise InputError("fixed spans need a start text; give one with --text, or use a template")
    if chains < 1:
        raise InputError(f"{chains} chains are too few; expected at least 1")
    if how not in STARTS:
        raise unknown_name("start", how, STARTS)
    distinct = _distinct(model, lengths, templates, texts, fixed)
    if chains < len(distinct):
        raise InputError(f"{chains} chains cannot cover {len(distinct)} starts ({given[0]}); ask for more chains")
    rows = torch.arange(chains) % len(distinct)
    sequences = distinct.rows(rows).to(model.device)
    if texts:
        if bool((sequences.tokens == model.mask_token).any()):
            raise InputError("a start text holds a mask token; give it as a template if only the masks are free")
        require_allowed(model, sequences, [texts[i] for i in rows.tolist()])
    return sequences


def fill_chains(
    model: HuggingFaceMaskedLM,
    sequences: Sequences,
    how: str,
    seed: int,
    chains: Sequence[int],
    energy: Energy | None = None,
) -> Sequences:
    """The masks of `sequences` filled (see `STARTS`) with the random numbers of the run's `chains`, one a row; within
    the constraints of `energy`, if it has some."""
    steered = steering(energy)
    if steered is not None and len(steered.constraints):
        uniforms = Streams(seed, chains, START).uniforms(0, sequences.width, model.device)
        return fill_constrained(model, steered, sequences, how, uniforms)
    if how == "diffusion":
        source = stream_source(Streams(seed, chains, START), sequences.width, sequences.device)
        return diffuse(model, sequences, FirstHitting(), source).sequences
    uniforms = Streams(seed, chains, START).uniforms(0, sequences.width, model.device)
    return fill(model, sequences, how, uniforms)


def unknown_context(model: HuggingFaceMaskedLM, templates: Sequence[str]) -> list[str]:
    """A notice if the vocabulary lacks tokens around the masks; templates that differ by masks alone count once."""
    codec = model.codec
    prose = {text.replace(LITERAL_MASK, "").replace(codec.tokenizer.mask_token, ""): text for text in templates}
    if not prose or codec.unknown is None:
        return []
    count = int((codec.template(list(prose.values())).tokens == codec.unknown).sum())
    return [unknown_tokens(count, " around the gaps")] if count else []


def _distinct(
    model: HuggingFaceMaskedLM,
    lengths: Sequence[int],
    templates: Sequence[str],
    texts: Sequence[str],
    fixed: Sequence[str],
) -> Sequences:
    codec = model.codec
    if lengths:
        return codec.blank(lengths)
    if templates:
        return codec.template(templates)
    if not fixed:
        return codec.encode(texts)
    return concatenate([codec.fixed_spans(text, fixed) for text in texts], codec.padding)
