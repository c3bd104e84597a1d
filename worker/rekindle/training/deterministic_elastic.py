"""A training that comes out the same, to the last bit, whether one rank computes it or four.

``Replicas`` keeps the global batches and their order in any world size; but each rank draws its own random numbers,
normalises its own part of a batch, and the ranks' gradients are added in an order that depends on how many there are.
So the weights differ in their last bits, and soon in all. ``DeterministicElastic`` takes the world size out of the
arithmetic. Every batch is cut in a fixed number of *virtual shards*. A rank computes its shards one after another, each

- with the same samples, loaded and collated by themselves, and weighed as ``run.batch_weight`` says,
- with random numbers drawn from (seed, step, shard),
- from the buffers as they were before the step: the mean of what the shards made of them is their new value.

The gradients of the shards are added up in a binary tree that is the same whoever holds which shard
(``addition_tree``), and every rank steps its optimizer with their mean.

The script sees the shards, since nothing else would be exact: a loss is a mean over samples that only the script knows
how to take, and it rounds differently over one shard than over two. So the loop over the batches gets a loop within,
and is the same script for every method, as the others give the batch in one part::

    for batch in run.batches(dataset, global_batch=64):
        optimizer.zero_grad()
        for x, y in run.parts(batch):
            loss = cross_entropy(run.model(x), y) * run.batch_weight
            loss.backward()
            run.log(loss=loss)
        optimizer.step()

What belongs to a step (clipping, the optimizer, a schedule, an average of the weights) stays behind the inner loop and
finds the gradients of the whole batch there. Hooks of the backward pass could not do it: they do not know where a shard
ends. Nor could a model that cuts its input, as the loss is taken outside of it.

A world size need not divide the shards, but a step takes as long as the rank with the most shards. Threads within an
operation change sums too, so their number is fixed. Other hardware or another version of torch may round differently:
no promise reaches across those.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from rekindle.training.process_group import World
from rekindle.training.sample_order import share
from rekindle.training.training_state import Stateful
from rekindle.training.virtual_shards import InParts, VirtualShards


class DeterministicElastic:
    """The method for ``Run`` whose result does not depend on the world size; loop over ``run.parts(batch)`` with it.

    ``virtual_shards`` is the largest world size; more of them than ranks cost time. ``threads`` compute within a rank.
    Both are saved, and must stay as they are.
    """

    divides_state = False

    def __init__(self, virtual_shards: int = 4, *, threads: int = 1) -> None:
        if virtual_shards < 1 or threads < 1:
            raise ValueError(f"virtual_shards and threads must be at least 1, not {virtual_shards} and {threads}")
        self._count, self._threads = virtual_shards, threads

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        """Every rank begins as rank 0. Raises ValueError or TypeError where the training cannot be exact."""
        self._refuse(model, world)
        self._fix_arithmetic(world)
        if world.size > 1:
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), src=0)
        return InParts(model)

    def seat(self, world: World) -> tuple[int, int]:
        """The first shard of this rank."""
        return share(self._count, world.rank, world.size).start, self._count

    def stream(self, world: World) -> int:
        """Outside of the shards, which draw their own."""
        return world.rank

    def parts(self, model: nn.Module, world: World, seed: int) -> VirtualShards:
        if not isinstance(model, InParts):
            raise TypeError(f"parts needs the wrapped model, not a {type(model).__name__}")
        return VirtualShards(model, world, self._count, seed)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Nothing is shared within a part anyway."""
        return nullcontext()

    def saved(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        settings = _Settings({"virtual_shards": self._count, "threads": self._threads})
        return model, {**parts, "deterministic_elastic": settings}

    def _refuse(self, model: nn.Module, world: World) -> None:
        if world.size > self._count:
            raise ValueError(
                f"{self._count} virtual shards are too few for {world.size} ranks: start at most {self._count}, or "
                "begin a new training with more shards"
            )
        for name, module in model.named_modules():
            if isinstance(module, nn.SyncBatchNorm):
                raise TypeError(
                    f"layer {name} is a SyncBatchNorm, which waits for ranks that may have another number of shards: "
                    "with DeterministicElastic use BatchNorm, which normalises each virtual shard"
                )

    def _fix_arithmetic(self, world: World) -> None:
        torch.set_num_threads(self._threads)
        if world.device.type == "cuda":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS refuses to be deterministic
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False


class _Settings:
    """Saved with the training, to be the same when it goes on."""

    def __init__(self, values: dict[str, int]) -> None:
        self._values = values

    def state_dict(self) -> dict[str, Any]:
        return self._values

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Raises ValueError where a setting is another one."""
        for name, value in self._values.items():
            if state[name] != value:
                raise ValueError(
                    f"the snapshot was trained with {name}={state[name]}, and DeterministicElastic now has {value}: "
                    f"give it the old {name}, or start in a new snapshot folder"
                )
