"""Diffusion sampling beside a plain loop of the published algorithm: same model, steps and random numbers.

256 sequences of 64 tokens in 64 ancestral steps of the log-linear schedule. The plain loop (Sahoo et al. 2024, MDLM,
section 4) runs the whole network in every step and takes the softmax at every position. The sequences are dealt into
eight hands; both fill each hand, taking turns to go first; the figure is the median of the eight ratios of time.

Measured with fewer sequences, tokens or steps where MASKROPOLIS_BENCH_DIFFUSION=SEQUENCES,TOKENS,STEPS says so. On a
machine that is busy otherwise, MASKROPOLIS_BENCH_CLOCK=cpu counts processor time on one thread instead.
"""

from __future__ import annotations

import os
import statistics
import time

import torch
from torch import Tensor

from benchmarks.harness import Goal, benchmark
from benchmarks.models import bundled
from benchmarks.score import CLOCK
from maskropolis.decoders.diffusion.ancestral import Ancestral
from maskropolis.decoders.diffusion.reverse import Source, diffuse, stream_source
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.randomness import START, Streams
from maskropolis.sequences import Sequences

SIZE = os.environ.get("MASKROPOLIS_BENCH_DIFFUSION", "256,64,64")
HANDS, BATCH = 8, 8  # rows in a forward pass of the plain loop: about the tokens of a pass of ours


@benchmark("diffusion.vs_plain_loop", unit="times as fast", goal=Goal(1.5))
def diffusion_vs_plain_loop() -> float:
    """Median over hands of time, the plain loop's over ours."""
    if CLOCK is time.process_time:
        torch.set_num_threads(1)
    count, length, steps = map(int, SIZE.split(","))
    model, hand = bundled(), max(1, count // HANDS)
    blank = model.codec.blank([length]).rows(torch.zeros(hand, dtype=torch.long))
    plain_loop(model, blank.rows(torch.arange(1)), 2, source(blank.rows(torch.arange(1)), 0, 1))
    ratios = []
    for turn in range(HANDS):
        uniforms = source(blank, turn * hand, hand)
        order = ["plain", "ours"] if turn % 2 else ["ours", "plain"]
        took, tokens = {}, {}
        for who in order:
            begin = CLOCK()
            tokens[who] = (
                plain_loop(model, blank, steps, uniforms)
                if who == "plain"
                else diffuse(model, blank, Ancestral(steps), uniforms).sequences.tokens
            )
            took[who] = CLOCK() - begin
        equal = float((tokens["plain"] == tokens["ours"]).double().mean())
        if equal < 0.5:  # a draw in a thousand is rounded otherwise and changes later ones of its sequence
            raise AssertionError(f"only {equal:.0%} of the tokens are the same")
        ratios.append(took["plain"] / took["ours"])
        print(
            f"  plain loop {took['plain']:.1f} s, ours {took['ours']:.1f} s, {equal:.1%} of the tokens equal",
            flush=True,
        )
    return statistics.median(ratios)


def source(blank: Sequences, first: int, count: int) -> Source:
    """The uniforms of chains `first` and later."""
    return stream_source(Streams(0, range(first, first + count), START), blank.width, blank.device)


@torch.inference_mode()
def plain_loop(model: HuggingFaceMaskedLM, blank: Sequences, steps: int, uniforms: Source) -> Tensor:
    """Tokens [C, T] after `steps` steps: the network on all rows, probabilities at all positions, every time."""
    tokens, allowed = blank.tokens.clone(), model.allowed
    for step in range(steps):
        alpha_s, alpha_t = (step + 1) / steps, step / steps
        drawn = uniforms(step)
        for first in range(0, len(tokens), BATCH):
            rows = slice(first, first + BATCH)
            logits = model.model(input_ids=tokens[rows]).logits
            probabilities = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
            reveal = (tokens[rows] == model.mask_token) & (drawn[rows, :, 0] < (alpha_s - alpha_t) / (1 - alpha_t))
            cumulated = probabilities[reveal].double().cumsum(-1)
            target = drawn[rows, :, 1][reveal] * cumulated[:, -1]
            tokens[rows][reveal] = torch.searchsorted(cumulated, target[:, None], right=True)[:, 0]
    return tokens
