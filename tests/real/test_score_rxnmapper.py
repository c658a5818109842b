"""Scoring with a model that nobody here trained: the reaction ALBERT of Schwaller et al. in the package rxnmapper."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import maskropolis
from maskropolis import HuggingFaceMaskedLM

ESTERIFICATION = "CC(=O)O.OCC>>CC(=O)OCC"
SCRAMBLED = "CC(=O)O.OCC>>C(C=O)COC)("


@pytest.fixture(scope="module")
def reactions(rxnmapper_folder: Path) -> HuggingFaceMaskedLM:
    return maskropolis.load(str(rxnmapper_folder), tokenizer="smiles", allow_pickle=True)


def test_the_vocabulary(reactions: HuggingFaceMaskedLM) -> None:
    tokenizer = reactions.codec.tokenizer
    assert reactions.vocabulary_size == 591 and reactions.mask_token == 14 and reactions.codec.padding == 0
    assert reactions.codec.frame == ([12], [13]) and reactions.codec.unknown == 11
    assert tokenizer.tokenize("[Na+].Clc1ccBr%10>>C[C@@H]=N") == [
        "[Na+]", ".", "Cl", "c", "1", "c", "c", "Br", "%10", ">>", "C", "[C@@H]", "=", "N",
    ]  # fmt: skip
    assert not reactions.allowed[torch.tensor([0, 11, 12, 13, 14])].any()


def test_smiles_there_and_back(reactions: HuggingFaceMaskedLM) -> None:
    assert reactions.codec.decode(reactions.codec.encode([ESTERIFICATION])) == [ESTERIFICATION]


def test_pll_against_the_full_model(reactions: HuggingFaceMaskedLM) -> None:
    ids = torch.tensor([reactions.codec.ids(ESTERIFICATION)])
    by_hand = 0.0
    for t in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, t] = reactions.mask_token
        with torch.inference_mode():
            by_hand += float(reactions.model(input_ids=masked).logits[0, t].log_softmax(-1)[ids[0, t]])
    assert maskropolis.score(ESTERIFICATION, reactions)[0].pll == pytest.approx(by_hand, abs=1e-3)


def test_chemistry_is_likelier_than_scrambled_chemistry(reactions: HuggingFaceMaskedLM) -> None:
    real, scrambled = maskropolis.score([ESTERIFICATION, SCRAMBLED], reactions)
    assert real.pll > scrambled.pll


def test_a_product_given_its_reactants(reactions: HuggingFaceMaskedLM) -> None:
    reactants, product = ESTERIFICATION.split(">>")
    whole = maskropolis.score(ESTERIFICATION, reactions)[0]
    part = maskropolis.score(product, reactions, prefix=reactants + ">>", joint="")[0]
    assert part.tokens == whole.tokens[-len(part.tokens) :]
    assert part.pll == pytest.approx(sum(whole.log_probabilities[-len(part.tokens) :]), abs=1e-4)
