"""How the ranks divide the work of a step: the part of a training that differs from strategy to strategy."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rekindle.training.data.progress import Progress
from rekindle.training.data.sampler import ElasticSampler
from rekindle.training.process_group import World
from rekindle.training.strategies.ddp_bucket_warmup import rebuild_buckets
from rekindle.training.training_state import Stateful


class WholeBatch:
    """How a rank divides its shard of a batch into micro-batches: into one. ``VirtualShards`` is the other answer.

    What ``batches`` yields for a step is moved to the device, given to the script, and handed back to ``of``.
    """

    def indices(self, sampler: ElasticSampler) -> Iterable[list[int]]:
        """What the loader is to fetch, in one list for each micro-batch."""
        return sampler

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """What the script is given for each step, of what the loader has fetched."""
        return iter(loader)

    def begin(self, progress: Progress) -> None:
        """An epoch or a step begins, after code whose random draws may differ in another world size."""

    def of(self, batch: Any, progress: Progress) -> Iterator[Any]:
        """The micro-batches of ``batch``; after the last one every rank has the gradients of the whole step."""
        yield batch


class Strategy:
    """What ``Run`` asks of a strategy, ``DDPStrategy`` by default; here the answers of ranks that share nothing.

    ``is_sharded``: no rank has the whole state, so all of them capture what the ranks share.
    """

    is_sharded = False

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        """The model to call in training; ``model`` is on the rank's device, and nothing is restored yet."""
        return model

    def data_shard(self, world: World) -> tuple[int, int]:
        """Which shard of every batch is this rank's (its first), and of how many; ``(0, 1)`` is the whole batch."""
        return world.rank, world.size

    def rng_stream(self, world: World) -> int:
        """Ranks of the same stream draw the same random numbers; most strategies give each rank its own."""
        return world.rank

    def microbatches(self, model: nn.Module, world: World, seed: int) -> WholeBatch:
        """How a rank divides its shard of a batch; ``model`` is the wrapped one."""
        return WholeBatch()

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Within, backward passes accumulate gradients without averaging them; ``model`` is the wrapped one."""
        return nullcontext()

    def stateful_parts(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        """What is saved for the model and for the other parts: they themselves, where a rank has all."""
        return model, parts


class NoStrategy(Strategy):
    """Nothing is shared for the script: one process, or a script with collectives of its own."""


class DDPStrategy(Strategy):
    """Every rank has the whole model and a shard of the batch; DistributedDataParallel averages the gradients."""

    def __init__(self, **settings: Any) -> None:
        """``settings`` are those of DistributedDataParallel, such as ``find_unused_parameters=True``."""
        self._settings = settings

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        gpu = [world.device.index] if world.device.type == "cuda" else None
        ddp = DistributedDataParallel(model, device_ids=gpu, **self._settings)
        rebuild_buckets(ddp)
        return ddp

    @contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        if not isinstance(model, DistributedDataParallel):
            raise TypeError(f"no_sync needs the wrapped model, not a {type(model).__name__}")
        with model.no_sync():
            yield


class ShardedStrategy(Strategy):
    """The parameters are DTensors, by ``fully_shard`` or ``parallelize_module``, before ``Run`` gets the model.

    Each rank saves its own shards, and any number of ranks can resume from them. The script joins the process group
    itself, since sharding needs it; the optimizer is made of the sharded parameters.
    ``same_batch`` gives every rank the whole batch, and the same random numbers, which is what a tensor-parallel model
    needs: dropout of what all ranks hold whole would differ otherwise.
    """

    is_sharded = True

    def __init__(self, *, same_batch: bool = False) -> None:
        self._same_batch = same_batch

    def data_shard(self, world: World) -> tuple[int, int]:
        return (0, 1) if self._same_batch else (world.rank, world.size)

    def rng_stream(self, world: World) -> int:
        return 0 if self._same_batch else world.rank

    @contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        from torch.distributed.fsdp import FSDPModule

        if not isinstance(model, FSDPModule):
            yield
            return
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)

    def stateful_parts(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        from rekindle.training.strategies.sharded_state import ShardedModel, ShardedOptimizer

        sharded = {
            name: ShardedOptimizer(model, part) if isinstance(part, torch.optim.Optimizer) else part
            for name, part in parts.items()
        }
        return ShardedModel(model), sharded
