"""(a) Author style: chains under a classifier of authors, over its weight α, beside rejection from the plain chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from classifiers import LABELS, Author
from measuring import Judges, Scale, State, add_energies, add_judgements, chains, estimate, fluency, states
from passages import Passage

ALPHAS = (1.0, 4.0, 16.0)


def plain_chains(model: Any, work: Path, scale: Scale, seed: int) -> Any:
    """Chains without an expert; a state is kept after every sweep, so that rejection has something to choose from."""
    return chains(
        model, work / "plain", length=scale.length, chains=scale.plain, burn_in=scale.burn_in, thin=1, samples=6,
        start="sampled", seed=seed,
    )  # fmt: skip


def run(model: Any, work: Path, scale: Scale, seed: int, judges: Judges, passages: Sequence[Passage]) -> dict[str, Any]:
    """One entry for each α, with the plain chain as α = 0 and rejection beside each; and held-out passages."""
    expert, judge = Author(work / "expert"), Author(work / "judge")
    plain = plain_chains(model, work, scale, seed)
    draws = states(plain)
    _measure(model, judges, draws)
    said, judged = expert.says([s.text for s in draws]), judge.says([s.text for s in draws])
    rows = [_base(draws, said, judged, plain)]
    for alpha in ALPHAS:
        found, kept, cost, seen = list[State](), list[State](), 0, 0
        for number, label in enumerate(LABELS):
            steered = chains(
                model, work / f"style-{label}-{alpha:g}", length=scale.length, chains=scale.chains,
                burn_in=scale.burn_in, thin=3, samples=2, start="sampled", seed=seed + 1 + number,
                experts=[f"classifier:{work / 'expert'}:{label}:{alpha:g}"],
            )  # fmt: skip
            found += states(steered, label)
            cost += steered.rows
            several = min(scale.plain, int(steered.rows * scale.plain // plain.rows))
            within = [i for i, state in enumerate(draws) if int(state.chain.rpartition("/")[2]) < several]
            seen += len(within)
            kept += [_kept(draws[i], label, judged[i]) for i in within if said[i] == label]
        _measure(model, judges, found)
        _succeed(found, expert.says([s.text for s in found]), judge.says([s.text for s in found]))
        rows.append(
            {
                "alpha": alpha,
                **_summary(found, cost),
                "rejection": {"draws": seen, "kept": len(kept), **_summary(kept, cost)},
                "examples": [{"author": s.label, "text": s.text} for s in _one_a_label(found)],
            }
        )
    return {"alphas": rows, "passages": _of_books(model, judges, expert, judge, passages), "signature": plain.signature}


def _measure(model: Any, judges: Judges, found: Sequence[State]) -> None:
    add_energies(model, found)
    add_judgements(judges.language, found)


def _succeed(found: Sequence[State], said: Sequence[str], judged: Sequence[str]) -> None:
    for state, one, other in zip(found, said, judged, strict=True):
        state.values |= {"expert": float(one == state.label), "judge": float(other == state.label)}


def _kept(state: State, label: str, judged: str) -> State:
    """A draw of the plain chain that the expert gave to `label`."""
    return State(
        state.text, state.ids, state.chain, label, {**state.values, "expert": 1.0, "judge": float(judged == label)}
    )


def _summary(found: Sequence[State], cost: int) -> dict[str, Any]:
    return {
        "success_expert": estimate(found, "expert"),
        "success_judge": estimate(found, "judge"),
        **fluency(found),
        "rows": cost,
    }


def _base(draws: Sequence[State], said: Sequence[str], judged: Sequence[str], plain: Any) -> dict[str, Any]:
    """The plain chain: a state succeeds for its label as often as chance gives that label, 1 in 4 on average."""
    shares = {label: round(sum(one == label for one in said) / len(said), 4) for label in LABELS}
    by_judge = {label: round(sum(one == label for one in judged) / len(judged), 4) for label in LABELS}
    agree = sum(one == other for one, other in zip(said, judged, strict=True)) / len(said)
    return {
        "alpha": 0.0, **fluency(draws), "rows": plain.rows, "shares_expert": shares, "shares_judge": by_judge,
        "agreement": round(agree, 4),
    }  # fmt: skip


def _of_books(model: Any, judges: Judges, expert: Author, judge: Author, passages: Sequence[Passage]) -> dict[str, Any]:
    """The same figures for sentences of the books held out, shown as the chains show theirs."""
    encoded = [model.codec.encode([passage.text]) for passage in passages]
    texts = [model.codec.decode(one)[0] for one in encoded]
    found = [
        State(text, one.tokens[0].tolist(), str(number), passage.author)
        for number, (text, one, passage) in enumerate(zip(texts, encoded, passages, strict=True))
    ]
    _measure(model, judges, found)
    _succeed(found, expert.says(texts), judge.says(texts))
    return {key: value for key, value in _summary(found, 0).items() if key != "rows"}


def _one_a_label(found: Sequence[State]) -> list[State]:
    """The first state of each label, whatever it is."""
    return [next(state for state in found if state.label == label) for label in LABELS]
