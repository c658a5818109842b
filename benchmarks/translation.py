"""Translation: Mask-Predict beside a plain loop, chains beside the machine's limit, and the step of training.

The network is of the size that the experiments train (3 + 3 layers, width 256, 8,000 symbols) with random weights; the
sources have the lengths of the English sentences in `data/sentences.txt`. On a machine that is busy otherwise,
MASKROPOLIS_BENCH_CLOCK=cpu counts processor time on one thread.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

from benchmarks.harness import FOLDER, Goal, benchmark

CPU = os.environ.get("MASKROPOLIS_BENCH_CLOCK") == "cpu"
CLOCK = time.process_time if CPU else time.perf_counter
SENTENCES = int(os.environ.get("MASKROPOLIS_BENCH_TRANSLATIONS", "1000"))
ITERATIONS, BEAM = 10, 3


@benchmark("translation.mask_predict_vs_plain_loop", unit="times the throughput", goal=Goal(2))
def mask_predict_vs_plain_loop() -> float:
    """1,000 sentences by Mask-Predict with 10 iterations and 3 lengths: ours against batches in file order, padded to
    the longest row, in which every row has its own encoded source and all positions go through every layer."""
    import torch

    _threads()
    model, sources = _model(), _sources(SENTENCES)
    ours_seconds, ours = _timed(lambda: _ours(model, sources))
    plain_seconds, plain = _timed(lambda: _plain_loop(model, sources))
    same = sum(a == b for a, b in zip(ours, plain, strict=True)) / len(ours)
    print(f"  ours {ours_seconds:.1f} s, plain loop {plain_seconds:.1f} s; {same:.1%} of translations are the same")
    if same < 0.99:
        raise AssertionError(f"only {same:.1%} of the translations are the same")
    print(f"  {torch.get_num_threads()} threads, {len(sources)} sentences")
    return plain_seconds / ours_seconds


@benchmark("translation.mh_sentences_per_second", unit="sentences a second", goal=Goal(0))
def mh_sentences_per_second() -> float:
    """One sweep of single-site Metropolis–Hastings from Mask-Predict, norm energy, one length."""
    from maskropolis.searching.hypotheses import decode
    from maskropolis.translation import make_decoding

    _threads()
    model, sources = _model(), _sources(max(8, SENTENCES // 10))
    decoding = make_decoding(decoder="mh", sweeps=1, length_beam=1, iterations=1)
    seconds, found = _timed(lambda: decode(model.bind(sources), range(1, len(sources) + 1), decoding))
    width = sum(len(best[0].tokens) + 1 for best in found.best) / len(sources)
    print(
        f"  {found.work.rows / seconds:.0f} model rows of {width:.1f} tokens a second; limit {_limit(model, width):.0f}"
    )
    return len(sources) / seconds


@benchmark("translation.training_tokens_per_second", unit="target tokens a second", goal=Goal(0))
def training_tokens_per_second() -> float:
    """The step of `maskropolis train cmlm`, 2,600 target tokens a batch."""
    import numpy as np
    import torch

    from maskropolis.training.loop import uses_bf16
    from maskropolis.training.optimisation import adamw
    from maskropolis.training.parallel.batches import Encoded, ParallelBatches
    from maskropolis.training.parallel.cmlm import CmlmTask
    from maskropolis.training.parallel.options import ParallelOptions

    _threads()
    task, network = CmlmTask(ParallelOptions("cmlm", "", "")), _model().network.train()
    rows = [row[:-1] for row in _sources(2000)]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    flat = np.concatenate([np.asarray(row, dtype=np.int32) for row in rows])
    batches = ParallelBatches(Encoded(flat, starts, flat, starts), 2600, 0)
    optimiser = adamw(network, 1e-4, 0.01)

    def step(number: int) -> int:
        batch = batches.at(number)
        made = task.prepare(network, batch, np.random.default_rng(number))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=uses_bf16("auto")):
            total, count = task.loss(network, batch, made, network.forward)
        (total / count).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return batch.tokens

    step(0)
    seconds, tokens = _timed(lambda: sum(step(number) for number in range(1, 9)))
    return tokens / seconds


def _threads() -> None:
    import torch

    if CPU:
        torch.set_num_threads(1)


def _timed(work: Any) -> tuple[float, Any]:
    start = CLOCK()
    made = work()
    return CLOCK() - start, made


def _model() -> Any:
    """The network of the experiments with random weights, large enough that lengths and tokens differ."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from maskropolis.models.conditional.config import ConditionalConfig
    from maskropolis.models.conditional.encoder_decoder import ConditionalMaskedLM
    from maskropolis.models.conditional.network import ConditionalNetwork

    special = ["<pad>", "</s>", "<unk>", "<mask>"]
    pieces = {piece: i for i, piece in enumerate([*special, *(f"w{i}" for i in range(7996))])}
    inner = Tokenizer(models.WordLevel(pieces, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", mask_token="<mask>"
    )
    torch.manual_seed(0)
    network = ConditionalNetwork(ConditionalConfig(vocab_size=len(pieces))).eval()
    with torch.no_grad():
        network.embed.weight.mul_(8)
        network.target_positions.weight.mul_(20)
    return ConditionalMaskedLM(network, tokenizer, name="translation-shaped")


def _sources(count: int) -> list[list[int]]:
    """Random tokens in the lengths of real sentences, end token behind; at most 60."""
    draw = random.Random(0)
    lines = (FOLDER / "data" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    lengths = [min(60, max(2, len(line.split()))) for line in lines]
    return [[draw.randrange(4, 8000) for _ in range(lengths[i % len(lengths)])] + [1] for i in range(count)]


def _lengths(sources: list[list[int]]) -> list[list[int]]:
    """Candidate lengths; those of an untrained network would all be alike."""
    return [[max(1, len(source) - 1 + change) for change in (0, 1, -1)] for source in sources]


def _ours(model: Any, sources: list[list[int]]) -> list[list[int]]:
    from maskropolis.decoders.mask_predict import best_of, mask_predict
    from maskropolis.translation import CHUNK

    found: list[list[int]] = []
    for first in range(0, len(sources), CHUNK):
        some = sources[first : first + CHUNK]
        bound = model.bind(some)
        owner = [i for i in range(len(some)) for _ in range(BEAM)]
        lengths = [n for one in _lengths(some) for n in one]
        filled = mask_predict(bound, bound.blank(owner, lengths), ITERATIONS)
        targets = bound.targets(filled.sequences)
        found += [targets[i] for i in best_of(filled.average, owner)]
    return found


def _plain_loop(model: Any, sources: list[list[int]], batch: int = 32) -> list[list[int]]:
    """Mask-Predict as one would write it first: see the benchmark."""
    import torch

    network, found = model.network, list[list[int]]()
    for first in range(0, len(sources), batch):
        some = sources[first : first + batch]
        rows = [(source, n) for source, lengths in zip(some, _lengths(some), strict=True) for n in lengths]
        with torch.inference_mode():
            scores, tokens = _fill_plainly(network, model.allowed, rows)
        for i in range(len(some)):
            own = range(BEAM * i, BEAM * (i + 1))
            best = max(own, key=lambda r: (float(scores[r]), -r))
            found.append(tokens[best, : rows[best][1]].tolist())
    return found


def _fill_plainly(network: Any, allowed: Any, rows: list[tuple[list[int], int]]) -> tuple[Any, Any]:
    import torch

    longest = max(n for _, n in rows) + 1
    source = torch.zeros(len(rows), max(len(s) for s, _ in rows), dtype=torch.long)
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, (one, n) in enumerate(rows):
        source[i, : len(one)] = torch.tensor(one)
        tokens[i, :n], tokens[i, n] = 3, 1
    counts = torch.tensor([n for _, n in rows])
    columns = torch.arange(longest)
    free, seen = columns < counts[:, None], columns <= counts[:, None]
    certain = torch.zeros(tokens.shape, dtype=torch.float64)
    memory, masked = network.encode(source, source != 0), free
    for iteration in range(ITERATIONS):
        if iteration:
            number = torch.minimum((counts.float() * (1 - iteration / ITERATIONS)).long().clamp(min=1), counts)
            ranks = torch.where(free, certain, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
            masked = ranks < number[:, None]
        every = columns.expand(len(rows), -1)
        logits = network.decode(torch.where(masked, 3, tokens), seen, memory, every).float()
        best = logits.masked_fill(~allowed, -torch.inf).argmax(-1)
        score = logits.gather(-1, best[..., None])[..., 0] - logits.logsumexp(-1)
        tokens = torch.where(masked, best, tokens)
        certain = torch.where(masked, score.double(), certain)
    return torch.where(free, certain, 0.0).sum(1) / counts, tokens


def _limit(model: Any, width: float) -> float:
    """Rows a second if matrix products alone were paid for, at the rate of one large product."""
    import torch

    a = torch.randn(2048, 2048)
    a @ a
    seconds, _ = _timed(lambda: [a @ a for _ in range(4)])
    rate = 4 * 2 * 2048**3 / seconds
    config = model.config
    square = config.d_model**2
    whole = 6 * square + 2 * config.d_model * config.feed_forward
    each = width * (config.decoder_layers - 1) * whole + width * 2 * square + whole + config.d_model * config.vocab_size
    return rate / (2 * each)
