"""How the ranks divide the work of a step: the part of a training that differs from strategy to strategy."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rekindle.training.process_group import World
from rekindle.training.sampler import ElasticSampler, TrainingProgress
from rekindle.training.training_state import Stateful


class WholeBatch:
    """How a rank divides its shard of a batch into micro-batches: into one. ``VirtualShards`` is the other answer.

    What ``batches`` yields for a step is moved to the device, given to the script, and handed back to ``of``.
    """

    def indices(self, sampler: ElasticSampler) -> Iterable[list[int]]:
        """List what the loader is to fetch, in one list for each micro-batch."""
        return sampler

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield what the script is given for each step, from what the loader has fetched."""
        return iter(loader)

    def begin(self, progress: TrainingProgress) -> None:
        """Begin an epoch or a step, after code whose random draws may differ in another world size."""

    def of(self, batch: Any, progress: TrainingProgress) -> Iterator[Any]:
        """Yield the micro-batches of ``batch``; after the last one every rank has the gradients of the whole step."""
        yield batch


class Strategy:
    """What ``Run`` asks of a strategy, ``DDPStrategy`` by default; here the answers of ranks that share nothing.

    ``is_sharded``: no rank has the whole state, so all of them capture what the ranks share.
    """

    is_sharded = False

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        """Make the model to call in training; ``model`` is on the rank's device, and nothing is restored yet."""
        return model

    def data_shard(self, world: World) -> tuple[int, int]:
        """Number of this rank's (first) shard of every batch, and of all shards; ``(0, 1)`` is the whole batch."""
        return world.rank, world.size

    def rng_stream(self, world: World) -> int:
        """Number of this rank's random stream: ranks of the same one draw the same numbers; most have their own."""
        return world.rank

    def microbatches(self, model: nn.Module, world: World, seed: int) -> WholeBatch:
        """Choose how a rank divides its shard of a batch; ``model`` is the wrapped one."""
        return WholeBatch()

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Accumulate the gradients of backward passes without averaging them; ``model`` is the wrapped one."""
        return nullcontext()

    def stateful_parts(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        """Choose what is saved for the model and for the other parts: they themselves, where a rank has all."""
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


def rebuild_buckets(ddp: DistributedDataParallel) -> None:
    """Let DistributedDataParallel rebuild its gradient buckets before the first step instead of after it.

    DDP regroups its buckets once, after the first backward pass. With three ranks or more the position of a gradient
    in its bucket decides in which order the ranks' parts are added, so the first step after *every* start is summed in
    another order than the same step of a training that was never interrupted, and the weights differ in the last bits.

    Runs one backward pass through all parameters, but through no layer: it needs no data and changes no state.
    Gradients arrive last parameter first, about as they do in training, so that communication still overlaps with
    the backward pass. They are cleared again. Call it on all ranks, before any gradient is needed.
    """
    model = ddp.module
    ddp.module = _ParameterSum(model)
    try:
        ddp(torch.zeros(())).backward()
    finally:
        ddp.module = model
    model.zero_grad(set_to_none=True)


class _ParameterSum(nn.Module):
    """Replaces a model by one whose output depends on each of its parameters."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = model

    def forward(self, total: Tensor) -> Tensor:
        for parameter in self._model.parameters():
            if parameter.requires_grad:
                total = total.to(parameter.device) + parameter.sum()
        return total
