"""Where the time of a training step goes: processor seconds a step, tokens a second, padding, and the costliest parts.

python experiments/translation/profile_step.py --source train.de --target train.en [--tokens 2600] [--steps 10]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from maskropolis.training.loop import Settings
from maskropolis.training.memory import keep_freed_blocks
from maskropolis.training.optimisation import Budget
from maskropolis.training.parallel.batches import ParallelBatches, encode_pairs
from maskropolis.training.parallel.options import ParallelOptions
from maskropolis.training.parallel.pairs import read_pairs
from maskropolis.training.parallel.run import make_task
from maskropolis.training.parallel.trainer import ParallelTrainer
from maskropolis.training.parallel.vocabulary import learn_joint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--kind", default="cmlm")
    parser.add_argument("--tokens", type=int, default=2600)
    parser.add_argument("--vocabulary-size", type=int, default=8000)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", type=int, default=0, help="rows of the profiler's table")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    keep_freed_blocks()
    trainer = make_trainer(chosen)
    for number in range(3):
        trainer.step(number, 0.0)
    began, spent, tokens, padded = time.perf_counter(), time.process_time(), 0, 0
    for number in range(3, 3 + chosen.steps):
        tokens += trainer.step(number, 0.0)[1] * chosen.copies
        padded += trainer.pairs.at(number).target.size * chosen.copies
    wall, cpu = time.perf_counter() - began, time.process_time() - spent
    print(f"{wall / chosen.steps:.3f} s and {cpu / chosen.steps:.3f} processor seconds a step")
    print(f"{tokens / wall:.0f} target tokens a second, {tokens / cpu:.0f} a processor second")
    print(f"target padding {1 - tokens / padded:.1%}")
    if chosen.table:
        with profile(activities=[ProfilerActivity.CPU]) as found:
            for number in range(3):
                trainer.step(number, 0.0)
        print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=chosen.table))


def make_trainer(chosen: argparse.Namespace) -> ParallelTrainer:
    options = ParallelOptions(
        chosen.kind, chosen.source, chosen.target, tokens=chosen.tokens, vocabulary_size=chosen.vocabulary_size,
        dropout=chosen.dropout, precision=chosen.precision, copies=chosen.copies,
    )  # fmt: skip
    pairs = read_pairs(options.source, options.target)
    tokenizer = learn_joint(pairs.sources + pairs.targets, options.vocabulary_size)
    task = make_task(options)
    network = task.network(tokenizer)
    encoded, _ = encode_pairs(pairs, tokenizer, task.longest(network))
    batches = ParallelBatches(encoded, options.tokens // options.copies, tokenizer.pad_token_id)
    print(f"{len(tokenizer)} pieces, {encoded.target_lengths.mean():.1f} target tokens a sentence, "
          f"{batches.batches_per_pass} batches a pass")  # fmt: skip
    settings = Settings(Budget(1000, None), peak=options.learning_rate, precision=options.precision)
    folder = Path(tempfile.mkdtemp())
    return ParallelTrainer(network, batches, task, settings, folder, lambda: 0.0, compile=chosen.compile)


if __name__ == "__main__":
    main()
