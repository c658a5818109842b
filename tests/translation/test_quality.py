"""Detokenisation, BLEU in both forms, and the exact search for the weight of an energy."""

from __future__ import annotations

import random

import pytest

from maskropolis.errors import InputError
from maskropolis.searching.moses import detokenise, unescape
from maskropolis.searching.quality import bleu, quality
from maskropolis.searching.tuning import tune


@pytest.mark.parametrize(
    ("tokenised", "plain"),
    [
        ("a man &apos;s hat , and &quot; a sign &quot; .", 'a man\'s hat, and "a sign".'),
        ("l&apos; homme n&apos; est pas ici .", "l'homme n'est pas ici."),
        ("they do n&apos;t ( really ) go : see ?", "they don't (really) go: see?"),
        ("a well @-@ known &amp; loved dog", "a well-known & loved dog"),
        ("qu&apos; un enfant , aujourd&apos; hui", "qu'un enfant, aujourd'hui"),
        ("&amp;apos; is an escape", "&apos; is an escape"),
        ("", ""),
    ],
)
def test_moses_is_undone(tokenised, plain):
    assert detokenise(tokenised) == plain


def test_escapes_alone_leave_the_spaces():
    assert unescape("a &apos;s &#91; b &#93;") == "a 's [ b ]"


def test_the_signature_says_which_form_was_scored():
    found = quality(["a b c d ."], ["A b c d ."])
    assert found.bleu == pytest.approx(100) and "case:lc" in found.signature
    assert "tok:none" in found.signature and found.signature.endswith("form:tokenised")
    other = quality(["a b c d ."], ["A b c d ."], "detokenised")
    assert "tok:13a" in other.signature and other.signature.endswith("form:moses-undone")
    with pytest.raises(InputError, match="1 translations cannot be scored against 2"):
        quality(["a"], ["a", "b"])
    with pytest.raises(InputError, match="unknown form"):
        quality(["a"], ["a"], "raw")


def test_the_tuned_weight_is_the_best_of_all():
    draw = random.Random(0)
    references = [" ".join(draw.choice("abcd") for _ in range(9)) for _ in range(20)]
    texts = [["".join(draw.choice([x, "d"]) for x in ref) for _ in range(6)] for ref in references]
    scores = [[draw.gauss(0, 1) for _ in one] for one in texts]
    features = [[draw.gauss(0, 1) for _ in one] for one in texts]

    def at(weight):
        chosen = [
            one[max(range(6), key=lambda i: s[i] + weight * f[i])]
            for one, s, f in zip(texts, scores, features, strict=True)
        ]
        return bleu(chosen, references)

    found = tune(texts, scores, features, references)
    assert at(found.weight) == pytest.approx(found.bleu)
    assert at(0) == pytest.approx(found.before) and at(1e9) == pytest.approx(found.alone)
    assert found.bleu >= max(at(k / 50) for k in range(400)) - 1e-9
    with pytest.raises(InputError, match="0 references"):
        tune([["a"]], [[0.0]], [[0.0]], [])
