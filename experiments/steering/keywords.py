"""(b) Words that every text must hold: satisfied by construction; what does it cost in fluency?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import Judges, Scale, State, add_energies, add_judgements, chains, estimate, fluency, states
from style import plain_chains

from maskropolis.targets.experts.counting import whole_word

WORDS = ("storm", "garden", "letter", "doctor", "ship", "money")
PAIRS = (("dog", "river"), ("king", "dinner"), ("train", "winter"))
SOFT = 5.0


def run(model: Any, work: Path, scale: Scale, seed: int, judges: Judges) -> dict[str, Any]:
    """Four systems: without words, an expert for the word, one word required, two words required."""
    plain = plain_chains(model, work, scale, seed)
    free = states(plain)[-scale.plain :]  # the last state of every chain
    systems: dict[str, list[State]] = {"unconstrained": [], f"keyword expert, α = {SOFT:g}": []}
    systems |= {"one word required": [], "two words required": []}
    first, soft, one, two = systems.values()
    for number, word in enumerate(WORDS, start=1):
        own = seed + 100 * number  # chains of different words are independent
        first += [State(s.text, s.ids, s.chain, word) for s in free]
        soft += _chains(model, work / f"soft-{word}", scale, own, word, experts=[f"keyword:{word}:{SOFT:g}"])
        one += _chains(model, work / f"required-{word}", scale, own + 1, word, require=[word])
    for number, pair in enumerate(PAIRS, start=1):
        own, name = seed + 100 * number + 2, "-".join(pair)
        two += _chains(model, work / f"required-{name}", scale, own, " ".join(pair), require=list(pair))
    rows = []
    for name, found in systems.items():
        measured = _once(found) if found is first else found
        add_energies(model, measured)
        add_judgements(judges.language, measured)
        for state in found:
            held = all(whole_word(word).search(state.text) for word in state.label.split())
            state.values["satisfied"] = float(held)
        rows.append({"system": name, "satisfied": estimate(found, "satisfied"), **fluency(measured)} | _examples(found))
    return {"systems": rows, "words": list(WORDS), "pairs": [list(pair) for pair in PAIRS]}


def _chains(model: Any, folder: Path, scale: Scale, seed: int, label: str, **steering: Any) -> list[State]:
    made = chains(
        model, folder, length=scale.length, chains=scale.keyword_chains, burn_in=scale.burn_in, thin=3, samples=2,
        start="sampled", seed=seed, **steering,
    )  # fmt: skip
    return states(made, label)


def _once(found: Sequence[State]) -> list[State]:
    """The states of the first word: the same texts stand there for each."""
    return [state for state in found if state.label == WORDS[0]]


def _examples(found: Sequence[State]) -> dict[str, Any]:
    labels = dict.fromkeys(state.label for state in found)
    return {"examples": [next(s.text for s in found if s.label == label) for label in labels][:3]}
