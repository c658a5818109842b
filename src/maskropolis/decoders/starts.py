"""Where chains begin: blanks of given lengths, templates, or texts, shared out over the chains in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from maskropolis.decoders.fill import fill, require_allowed
from maskropolis.errors import InputError
from maskropolis.models.huggingface import HuggingFaceMaskedLM
from maskropolis.randomness import START, Streams
from maskropolis.sequences import Sequences, concatenate


def start_chains(
    model: HuggingFaceMaskedLM,
    chains: int,
    *,
    lengths: Sequence[int] = (),
    templates: Sequence[str] = (),
    texts: Sequence[str] = (),
    fixed: Sequence[str] = (),
    how: str = "greedy",
    seed: int = 0,
) -> Sequences:
    """`chains` filled rows. Exactly one of `lengths`, `templates`, `texts` must be given; its entries take turns.

    `fixed` are spans of the texts that must not change. `how` (see `fill`) says what masked positions begin with.
    Raises `InputError` for anything malformed.
    """
    given = [name for name, value in (("length", lengths), ("template", templates), ("text", texts)) if value]
    if len(given) != 1:
        raise InputError(f"expected one of length, template or text; got {' and '.join(given) or 'none'}")
    if fixed and not texts:
        raise InputError("fixed spans need a start text; give one with --text, or use a template")
    if chains < 1:
        raise InputError(f"{chains} chains are too few; expected at least 1")
    distinct = _distinct(model, lengths, templates, texts, fixed)
    if chains < len(distinct):
        raise InputError(f"{chains} chains cannot cover {len(distinct)} starts ({given[0]}); ask for more chains")
    rows = torch.arange(chains) % len(distinct)
    sequences = distinct.rows(rows).to(model.device)
    uniforms = Streams(seed, range(chains), START).uniforms(0, sequences.width, model.device)
    started = fill(model, sequences, how, uniforms)
    if texts:
        require_allowed(model, started, [texts[i] for i in rows.tolist()])
    return started


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
