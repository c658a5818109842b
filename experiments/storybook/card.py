"""The card and the notice of storybook; every figure comes from results.json."""

from __future__ import annotations

from typing import Any

from recipe import DATA_NOTE, INIT_RELEASE


def storybook_card(results: dict[str, Any]) -> str:
    """The card in Markdown, with the YAML head that model hubs read."""
    runs = results["runs"]
    options, millions = runs[0]["options"], sum(run["tokens"] for run in runs) / 1e6
    return f"""---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: fill-mask
tags: [masked-language-model, maskropolis]
---

# storybook

The English model in the package maskropolis: a BERT of 6 layers, width 384, 12 heads and 12,000 uncased word pieces
({results["parameters"] / 1e6:.1f} million parameters, {results["bytes"] / 1e6:.1f} MB in float16), for trying things
out on any machine without a network. It is small, it has read old novels, and it should be judged accordingly.

## Data

{DATA_NOTE}
One book in twenty was held out, drawn with seed 0, and never trained on: {_names(results["held_out"])}.

## Training

Encoder and embeddings start from MiniLM-L6-H384 (`{INIT_RELEASE}`, Apache-2.0), the output layer from
the identity and the embeddings. The vocabulary is cut to the 12,000 pieces that the training books need; curly quotes
read as straight ones. {millions:.1f} million tokens in rows of {options["length"]}: half of the batches
with the BERT objective (15% chosen, 80/10/10), half with a mask rate uniform in (0, 1] and pure masking; a fifth of the
batches single sentences. AdamW, {options["warmup"]} steps of warm-up, linear decay, no dropout, bfloat16 autocast.

```
make model BOOKS=books.tar.xz
make model BOOKS=books.tar.xz MODEL=--further
```

trains it anew, and then further. The runs are timed, so another machine makes other numbers of steps; these were made
on {_machine(results)}:

{_runs(runs)}

{_notes(runs)}Versions: {_versions(runs[-1]["versions"])}.

Loss on held-out rows during training (15% chosen, nats), run by run:

{_curves(runs)}

## Measured on the held-out books

Nats per predicted piece of the 12,000, with the standard error over rows.

| what is predicted | loss | perplexity | pieces |
| --- | --- | --- | --- |
{_table(results)}
{_agreement(results.get("agreement"))}{_ablation(results.get("ablation"))}
Signature: `{results["signature"]}`

{_samples(results.get("samples"))}## Limits

- English only, lower case only, prose of roughly 1810 to 1965; it does not know later words, facts or manners, and it
  repeats the prejudices of its books.
- Rows of 64 tokens were trained; longer texts (up to 512) run, but were not measured.
- It predicts words, not truths. It is no judge of fluency outside such prose.
"""


def notice() -> str:
    """What the licences of the parts ask to be said."""
    return f"""storybook: a masked language model distributed with maskropolis, Apache License 2.0.

It is derived from the following works.

MiniLM-L6-H384-uncased as fine-tuned in all-MiniLM-L6-v2 (release {INIT_RELEASE}): encoder weights, embeddings
and word-piece vocabulary. Apache License, Version 2.0. Changed: the vocabulary was cut, all weights were trained on.
MiniLM: Wang et al. (2020). The vocabulary is that of BERT (Devlin et al. 2019), Apache License, Version 2.0.

Books from Standard Ebooks, used as training text. The texts are in the public domain in the United States; the
editions' own work is dedicated to the public domain under CC0 1.0 Universal. The files hold no text of the books.

The Apache License 2.0 is in the file LICENSE of this package.
"""


def _names(stems: list[str]) -> str:
    return ", ".join(f"*{stem.split('_', 1)[-1].replace('-', ' ').title()}*" for stem in stems)


def _machine(results: dict[str, Any]) -> str:
    return f"{results['machine']['cores']} cores of {results['machine']['cpu']}, other work beside it"


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _runs(runs: list[dict[str, Any]]) -> str:
    """One row for each run: where it started, how long it was, its rate and seed."""
    head = "| run | from | tokens, millions | steps | minutes | highest rate | seed |\n" + "| --- " * 7 + "|"
    rows = [
        f"| {number} | {run['options']['init']} | {run['tokens'] / 1e6:.1f} | {run['step']:,} | {run['minutes']:.0f} "
        f"| {run['options']['learning_rate']:g} | {run['options']['seed']} |"
        for number, run in enumerate(runs, start=1)
    ]
    return "\n".join([head, *rows])


def _notes(runs: list[dict[str, Any]]) -> str:
    return "".join(f"Run {number}: {run['note']}\n" for number, run in enumerate(runs, start=1) if run["note"])


def _samples(found: dict[str, Any] | None) -> str:
    """The samples, if they were drawn."""
    if found is None:
        return ""
    sampling = found["settings"]
    chosen = f"ten chains with {sampling['length']} free tokens, seed {sampling['seed']}"
    texts = "\n".join(f"{number}. {text}" for number, text in enumerate(found["texts"], start=1))
    return f"""## Ten samples

Drawn at random and not picked: the states of {chosen}, all other settings those of
`maskropolis sample`.

{texts}

"""


def _curves(runs: list[dict[str, Any]]) -> str:
    """Tokens and loss; the tokens of all runs are counted together."""
    before, points = 0, []
    for run in runs:
        found = [point for point in run["points"] if "validation_loss" in point]
        points += [(before + point["tokens"], point["validation_loss"]) for point in found]
        before += run["tokens"]
    head = "| tokens, millions | " + " | ".join(f"{tokens / 1e6:.1f}" for tokens, _ in points) + " |"
    loss = "| loss | " + " | ".join(f"{loss:.3f}" for _, loss in points) + " |"
    return "\n".join([head, "| --- " * (len(points) + 1) + "|", loss])


def _row(name: str, figures: dict[str, float]) -> str:
    loss = f"{figures['loss']:.3f} ± {figures['standard_error']:.3f}"
    return f"| {name} | {loss} | {figures['perplexity']:.2f} | {figures['positions']:,} |"


def _table(results: dict[str, Any]) -> str:
    """One row for each loss that was measured."""
    names = {
        "bert_15": "15% chosen, 80/10/10",
        "masked_15": "15% masked",
        "single": "one mask in a row, all else visible",
    }
    rows = [_row(name, results[key]) for key, name in names.items() if key in results]
    rows += [_row(f"{rate} masked", figures) for rate, figures in results.get("pure_masking", {}).items()]
    return "\n".join(rows)


def _agreement(found: dict[str, float] | None) -> str:
    if found is None:
        return ""
    kinds = "; ".join(f"{kind}: {_percent(share)}" for kind, share in found.items() if kind not in ("all", "pairs"))
    right = f"{_percent(found['all'])} of {found['pairs']} pairs"
    return f"""
Agreement: the pseudo-log-likelihood prefers the grammatical sentence in {right}
({kinds}).
"""


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _ablation(found: dict[str, Any] | None) -> str:
    """What the uniform rates cost: two short runs that differ in nothing else."""
    if found is None:
        return ""
    mixture, bert = found["mixture"]["single"], found["bert"]["single"]
    change = mixture["perplexity"] / bert["perplexity"] - 1
    return f"""
Ablation, {found["description"]}: perplexity of one mask in a row {mixture["perplexity"]:.2f} with the
mixture, {bert["perplexity"]:.2f} with the BERT objective alone ({change:+.1%}); at 50% masked
{found["mixture"]["half"]["perplexity"]:.1f} against {found["bert"]["half"]["perplexity"]:.1f}.
"""
