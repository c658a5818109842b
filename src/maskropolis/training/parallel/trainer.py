"""The training loop on sentence pairs: the losses of a task, BLEU on held-out pairs, averages of the last states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from maskropolis.training import checkpoint
from maskropolis.training.data.batches import stream
from maskropolis.training.loop import Listener, Settings, Trainer
from maskropolis.training.parallel.batches import PairBatch, ParallelBatches

AVERAGED = "averaged"


class Prepared(Protocol):
    """A batch made ready by a task; `rows` gives some of its rows."""

    @property
    def chosen(self) -> np.ndarray: ...

    def rows(self, which: slice) -> Any: ...


class Losses(Protocol):
    """The part of a task that the loop needs."""

    def prepare(self, network: Any, batch: PairBatch, random: np.random.Generator) -> Any: ...

    def loss(self, network: Any, batch: PairBatch, made: Any, forward: Any) -> tuple[Tensor, int]: ...


class ParallelTrainer(Trainer):
    """`validate` gives BLEU; the loop, which looks for a low number, is told minus that.

    `keep`: how many of the last evaluated states stay in `folder`/averaged, to be averaged at the end.
    """

    def __init__(
        self,
        network: nn.Module,
        batches: ParallelBatches,
        task: Losses,
        settings: Settings,
        folder: Path,
        validate: Callable[[], float],
        listener: Listener | None = None,
        keep: int = 5,
        compile: bool = False,
    ) -> None:
        unused: Any = None
        super().__init__(
            network, cast(Any, batches), unused, unused, settings, folder, lambda *_: -self._validate(), listener
        )
        self._task, self.pairs, self._keep, self._bleu = task, batches, keep, validate
        self._forward = torch.compile(network.forward, dynamic=True) if compile else network.forward

    def loss(self, number: int) -> tuple[Tensor, int]:
        """See `Trainer.loss`: the mean over the predicted tokens of the whole batch."""
        batch = self.pairs.at(number)
        made = self._task.prepare(self.model, batch, stream(self.settings.seed, 3, number))
        mine = slice(self.accelerator.process_index, None, self.accelerator.num_processes)
        with self.autocast():
            total, _ = self._task.loss(self.model, batch.rows(mine), made.rows(mine), self._forward)
        return total / float(made.chosen.sum()), batch.tokens

    def _validate(self) -> float:
        with self.autocast():
            return self._bleu()

    def _evaluate(self) -> None:
        super()._evaluate()
        if not self.accelerator.is_main_process:
            return
        folder = self.folder / AVERAGED
        folder.mkdir(exist_ok=True)
        checkpoint.save(folder / f"{self.progress.step:09}.safetensors", self.model, None, {"step": self.progress.step})
        for old in self._kept()[: -self._keep]:
            old.unlink()

    def _kept(self) -> list[Path]:
        """The states kept so far that are no later than this one, oldest first."""
        found = sorted((self.folder / AVERAGED).glob("*.safetensors"))
        return [path for path in found if int(path.stem) <= self.progress.step]

    def average(self) -> int:
        """Put the mean of the kept states into the network; returns how many they were (0: nothing done)."""
        paths = self._kept()[-self._keep :]
        own, sums = checkpoint.weights(self.model), dict[str, Tensor]()
        for path in paths:
            with safe_open(path, framework="pt") as file:
                for name in own:
                    tensor = file.get_tensor(f"model/{name}").double()
                    sums[name] = sums[name].add_(tensor) if name in sums else tensor
        with torch.no_grad():
            for name, total in sums.items():
                own[name].copy_(total / len(paths))
        return len(paths)
