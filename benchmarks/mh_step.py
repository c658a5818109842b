"""A step of the single-site kernel beside the textbook's, same model, same random numbers, same chain.

On a machine that is busy otherwise, MASKROPOLIS_BENCH_CLOCK=cpu counts processor time on one thread instead.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.harness import Goal, benchmark
from benchmarks.models import bundled
from benchmarks.score import CLOCK
from benchmarks.textbook import Textbook
from maskropolis.kernels.single_site import SingleSite
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.randomness import Streams
from maskropolis.sequences import Sequences
from maskropolis.targets.energy import NORM

SENTENCE = "the old man went slowly down to the river and sat there"
TURNS, STEPS = 5, 4


@benchmark("mh_step.vs_textbook", unit="times as fast", goal=Goal(2))
def step_vs_textbook(chains: int = 16) -> float:
    """Median over `TURNS` of time per step, textbook's over ours; they take turns on the same chain."""
    if CLOCK is time.process_time:
        torch.set_num_threads(1)
    model = bundled()
    start = model.codec.encode([SENTENCE] * chains)
    kernel, streams = SingleSite(NORM), Streams(0, range(chains))
    state, textbook = kernel.init(model, start), textbook_of(model, start)
    ratios, step = [], 0
    for turn in range(TURNS + 1):
        theirs = ours = 0.0
        for _ in range(STEPS):
            uniforms = streams.uniforms(step, 3)
            theirs += seconds(lambda u=uniforms: textbook.step(u))
            begin = CLOCK()
            state, _ = kernel.step(model, state, 1.0, uniforms)
            ours += CLOCK() - begin
            step += 1
            if not torch.equal(state.sequences.tokens, textbook.tokens):
                raise AssertionError(f"the chains differ after {step} steps")
        if turn:  # the first warms up
            ratios.append(theirs / ours)
            print(f"  textbook {theirs / STEPS:.2f} s, ours {ours / STEPS:.2f} s a step of {chains} chains", flush=True)
    return statistics.median(ratios)


def textbook_of(model: HuggingFaceMaskedLM, start: Sequences, normalised: bool = True) -> Textbook:
    return Textbook(model.model, model.mask_token, model.allowed, start, normalised)


def seconds(work: Callable[[], object]) -> float:
    start = CLOCK()
    work()
    return CLOCK() - start
