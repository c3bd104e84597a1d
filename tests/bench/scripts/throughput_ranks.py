"""Recipe ``ddp`` and a plain PyTorch loop in the same processes, an epoch of each in turn: for ``recipe_throughput``.

    torchrun --nproc-per-node 2 throughput_ranks.py --epochs 6 --batch-size 128 --model small-resnet

The options are those of the recipe. The plain loop has the same data, model, batches, optimizer, learning rate and
accuracy, and no rekindle: DistributedSampler, DataLoader, DistributedDataParallel. Both are timed from before the
first batch until after the last step. Rank 0 prints a JSON line for each epoch: ``{"recipe": seconds, "plain": …}``.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchmetrics.classification import MulticlassAccuracy

from rekindle import Run
from rekindle.recipes import ddp, models, training_context
from rekindle.recipes.loop import fit
from rekindle.recipes.training_context import TrainingContext


class PlainLoop:
    """A training loop as in the tutorials of PyTorch."""

    def __init__(self, context: TrainingContext) -> None:
        self._device, options, images = context.device, context.options, context.data
        on_gpu = self._device.type == "cuda"
        module = models.build(options.model, images.shape).to(self._device)
        self._model = DistributedDataParallel(module, device_ids=[self._device.index] if on_gpu else None)
        self._optimizer = torch.optim.SGD(module.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4)
        self._accuracy = MulticlassAccuracy(images.shape.classes, average="micro").to(self._device)
        self._sampler = DistributedSampler(images.train, seed=options.seed)
        per_rank = context.batch.global_batch // context.batch.data_parallel_size
        self._batches = DataLoader(
            images.train, per_rank, sampler=self._sampler, num_workers=options.workers, pin_memory=on_gpu
        )
        self._precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.amp)

    def train_epoch(self, epoch: int) -> None:
        self._sampler.set_epoch(epoch)
        self._accuracy.reset()
        for images, labels in self._batches:
            x, y = images.to(self._device), labels.to(self._device)
            with torch.autocast(self._device.type, self._precision, enabled=self._precision is not None):
                logits = self._model(x)
                loss = cross_entropy(logits, y)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            self._accuracy.update(logits.detach(), y)
        loss.item()


class InTurns(Run):
    """``Run`` with an epoch of the plain loop before each of its own."""

    plain: PlainLoop

    def epochs(self, count: int) -> Iterator[int]:
        for epoch in super().epochs(count):
            while self._saver.snapshots.in_progress:  # a snapshot must not slow the plain loop down
                time.sleep(0.05)
            with as_torch_comes():
                began = self._now()
                self.plain.train_epoch(epoch)
                self._plain_seconds = self._now() - began
            yield epoch

    def batches(self, dataset: Dataset[Any], **how: Any) -> Iterator[Any]:
        began = self._now()
        yield from super().batches(dataset, **how)
        seconds = self._now() - began
        if self.rank == 0:
            print(json.dumps({"recipe": seconds, "plain": self._plain_seconds}), flush=True)

    def _now(self) -> float:
        """When all ranks are here and their devices idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
        return time.monotonic()


@contextmanager
def as_torch_comes() -> Iterator[None]:
    """Without what the recipe has switched on so that it can be repeated."""
    torch.use_deterministic_algorithms(False)
    yield
    torch.use_deterministic_algorithms(True)


def fit_in_turns(run: InTurns, context: TrainingContext) -> None:
    run.plain = PlainLoop(context)
    fit(run, context)


if __name__ == "__main__":
    training_context.Run, ddp.fit = InTurns, fit_in_turns
    ddp.main()
