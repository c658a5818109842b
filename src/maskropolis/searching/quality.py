"""BLEU and chrF of translations by sacrebleu, each with a signature that also says in which form they were scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF

from maskropolis.errors import InputError, unknown_name
from maskropolis.searching.moses import detokenise

FORMS = ("tokenised", "detokenised")


@dataclass(frozen=True)
class Quality:
    """Corpus BLEU and chrF, 0 to 100, and how they were computed."""

    bleu: float
    chrf: float
    signature: str


def quality(hypotheses: Sequence[str], references: Sequence[str], form: str = "tokenised") -> Quality:
    """Scores of translations against one reference each, ignoring case.

    `tokenised`: as they stand, split at spaces, as published systems report; `detokenised`: both with Moses escapes
    undone and punctuation joined, tokenised anew by sacrebleu (13a). Raises `InputError` for unequal numbers.
    """
    if form not in FORMS:
        raise unknown_name("form", form, FORMS)
    if len(hypotheses) != len(references) or not references:
        raise InputError(
            f"{len(hypotheses)} translations cannot be scored against {len(references)} references; expected one each"
        )
    if form == "detokenised":
        hypotheses, references = [detokenise(h) for h in hypotheses], [detokenise(r) for r in references]
    bleu = BLEU(lowercase=True, tokenize="none" if form == "tokenised" else "13a")
    chrf = CHRF(lowercase=True)
    found = bleu.corpus_score(list(hypotheses), [list(references)])
    other = chrf.corpus_score(list(hypotheses), [list(references)])
    signature = f"{bleu.get_signature()}|form:{form if form == 'tokenised' else 'moses-undone'}"
    return Quality(float(found.score), float(other.score), signature)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Tokenised corpus BLEU, ignoring case: what training and tuning watch."""
    return quality(hypotheses, references).bleu
