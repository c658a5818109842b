"""(c) Reactions: the product stands, rxnmapper samples the reactant side, with and without the validity expert."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from measuring import Scale, State, add_energies, chains, estimate, states

import maskropolis
from maskropolis.targets.experts.smiles import SmilesValidity

RELEASE = "rxnmapper==0.4.3"
INSIDE = "models/transformers/albert_heads_8_uspto_all_1310k"
WEIGHTS = (0.0, 3.0, 10.0)
KERNEL = "mixture:single-site=2,block(k=2)=1"
REACTIONS = {
    "esterification": "CC(=O)O.OCC>>CC(=O)OCC",
    "amide coupling": "CC(=O)Cl.NCC>>CC(=O)NCC",
    "ether synthesis": "CCBr.Oc1ccccc1>>CCOc1ccccc1",
    "reductive amination": "CC=O.CNC>>CCN(C)C",
    "nitro reduction": "Cc1ccc([N+](=O)[O-])cc1>>Cc1ccc(N)cc1",
    "hydrolysis": "COC(=O)c1ccccc1>>OC(=O)c1ccccc1",
    "alcohol oxidation": "CCC(O)C>>CCC(=O)C",
    "Grignard addition": "CC(=O)C.C[Mg]Br>>CC(C)(C)O",
}
"""Textbook reactions. The number of tokens on the left is the only thing that the chains are told of it."""


def load() -> Any:
    """rxnmapper's masked language model. Raises `SystemExit` if its package is not installed."""
    found = importlib.util.find_spec("rxnmapper")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"the reaction model is not installed: pip install --no-deps {RELEASE}")
    folder = Path(found.submodule_search_locations[0]) / INSIDE
    model = maskropolis.load(str(folder), tokenizer="smiles", allow_pickle=True)
    model.name = "rxnmapper"
    return model


def run(work: Path, scale: Scale, seed: int) -> dict[str, Any]:
    """One entry for each weight of the validity expert."""
    model, validity = load(), SmilesValidity.load()
    arrow = model.codec.tokenizer.convert_tokens_to_ids(">>")
    chosen = dict(list(REACTIONS.items())[: scale.reactions])
    rows, signature = [], ""
    for weight in WEIGHTS:
        found, cost = list[State](), 0
        for number, (name, reaction) in enumerate(chosen.items()):
            left, _, product = reaction.partition(">>")
            masks = model.codec.tokenizer.mask_token * len(model.codec.tokenizer.tokenize(left))
            made = chains(
                model, work / f"reactions-{name.replace(' ', '-')}-{weight:g}", template=f"{masks}>>{product}",
                chains=scale.reaction_chains, start="sampled", kernel=KERNEL, burn_in=scale.burn_in, thin=2, samples=3,
                seed=seed + number, experts=[f"smiles-validity:{weight:g}"] if weight else [],
            )  # fmt: skip
            found += states(made, name)
            cost += made.rows
            signature = made.signature
        add_energies(model, found, end=arrow)
        for state in found:
            _describe(state, validity)
        rows.append(
            {
                "weight": weight,
                "valid": estimate(found, "valid"),
                "invalid_molecules": estimate(found, "invalid"),
                "energy": estimate(found, "energy", "free"),
                "textbook": estimate(found, "textbook"),
                "distinct": len({state.text for state in found}),
                "states": len(found),
                "chains": len({state.chain for state in found}),
                "rows": cost,
                "examples": {name: next(s.text for s in found if s.label == name) for name in chosen},
            }
        )
    return {"weights": rows, "reactions": chosen, "kernel": KERNEL, "signature": signature}


def _describe(state: State, validity: SmilesValidity) -> None:
    """Validity of the reactant side, and whether it is the textbook's, however it is written."""
    side = state.text.partition(">>")[0]
    invalid = validity.invalid(side)
    same = not invalid and _canonical(side) == _canonical(REACTIONS[state.label].partition(">>")[0])
    state.values |= {"invalid": float(invalid), "valid": float(not invalid), "textbook": float(same)}


def _canonical(side: str) -> str:
    from rdkit import Chem

    return str(Chem.MolToSmiles(Chem.MolFromSmiles(side)))
