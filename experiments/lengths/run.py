"""How often a length-changing chain on the bundled model visits each length, against all texts enumerated.

    python experiments/lengths/run.py            # about a minute on one thread; writes results.json beside this file

One to three of the 16 likeliest tokens fill a gap: 4,368 texts, whose conditionals are the model's own. The exact
shares of the lengths under p(n) exp((c n − E(x)) / τ) are sums over these texts; those found are means over
independent chains, each over the steps after burn-in, with the standard error of that mean.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import maskropolis
from maskropolis.kernels.specification import build_kernel
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.reference.shortlist import ShortlistMaskedLM
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM, block_conditionals

TEMPLATE = "The captain looked at the [MASK]."
PRIORS = {"uniform": "prior=uniform,offset=2.2", "poisson": "prior=poisson,mean=2,offset=2.2"}
TOKENS, LONGEST, CHAINS, STEPS, BURN_IN, SEED = 16, 3, 200, 400, 100, 5


def narrowed(model: HuggingFaceMaskedLM) -> tuple[ShortlistMaskedLM, Sequences]:
    """The model over the likeliest tokens of the gap, its rows computed once; and the gap filled with the first."""
    template = model.codec.template([TEMPLATE])
    free = template.free[0].nonzero()[:, 0][None]
    logits = block_conditionals(model, template, free)[0, 0].masked_fill(~model.allowed, -torch.inf)
    tokens = logits.topk(TOKENS).indices
    narrow = ShortlistMaskedLM(model, tokens, template)
    return narrow, narrow.narrow(template.with_tokens(free, tokens[:1][None]))


def measure(narrow: ShortlistMaskedLM, start: Sequences, prior: str) -> dict[str, Any]:
    """Shares of the lengths 1 to 3: wanted, found, and the standard error of what was found."""
    kernel = build_kernel(f"resize:longest={LONGEST},{prior}", NORM)
    states, log_weights = kernel.enumerate(narrow, start, 1.0)
    texts, weights = states.sequences.free_counts, torch.softmax(log_weights, 0)
    wanted = [float(weights[texts == n].sum()) for n in range(1, LONGEST + 1)]
    streams, seen = Streams(SEED, range(CHAINS)), torch.zeros(CHAINS, LONGEST, dtype=torch.float64)
    state = kernel.init(narrow, start.rows(torch.zeros(CHAINS, dtype=torch.long)))
    for step in range(STEPS):
        state, _ = kernel.step(narrow, state, 1.0, streams.uniforms(step, kernel.uniforms_per_step))
        if step >= BURN_IN:
            seen += torch.nn.functional.one_hot(state.sequences.free_counts - 1, LONGEST)
    shares = seen / (STEPS - BURN_IN)  # [chains, lengths], independent rows
    error = shares.std(0) / CHAINS**0.5
    return {"wanted": wanted, "found": shares.mean(0).tolist(), "error": error.tolist(), "texts": len(texts)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = maskropolis.load(device="cpu")
    narrow, start = narrowed(model)
    results: dict[str, Any] = {name: measure(narrow, start, prior) for name, prior in PRIORS.items()}
    results["how"] = {
        "model": f"{model.name}@{model.fingerprint()[:12]}", "template": TEMPLATE, "priors": PRIORS, "tokens": TOKENS,
        "chains": CHAINS, "steps": STEPS, "burn_in": BURN_IN, "seed": SEED, "version": maskropolis.__version__,
    }  # fmt: skip
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    for name in PRIORS:
        print(name, json.dumps(results[name]))


if __name__ == "__main__":
    main()
