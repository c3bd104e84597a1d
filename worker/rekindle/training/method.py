"""How the ranks divide the work of a step: the part of a training that differs from method to method."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rekindle.training.parts import OnePart, Parts
from rekindle.training.process_group import World
from rekindle.training.training_state import Stateful
from rekindle.training.warm_up import settle_buckets


class Method(Protocol):
    """What ``Run`` asks of a method; ``Replicas`` is its default.

    ``divides_state`` says that no rank has the whole state: then all of them capture what the ranks share.
    """

    divides_state: bool

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        """The model to call in training; ``model`` is on the rank's device, and nothing is restored yet."""

    def seat(self, world: World) -> tuple[int, int]:
        """Which share of every batch is this rank's (its first), and of how many; ``(0, 1)`` is the whole batch."""

    def stream(self, world: World) -> int:
        """Ranks of the same stream draw the same random numbers; most methods give each rank its own."""

    def parts(self, model: nn.Module, world: World, seed: int) -> Parts:
        """In how many parts a rank computes its share of a batch; ``model`` is the wrapped one."""

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Within, backward passes add up gradients without sharing them; ``model`` is the wrapped one."""

    def saved(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        """What stands for the model and for the other parts in a snapshot: they themselves, where a rank has all."""


class Replicas:
    """Every rank has the whole model and a share of the batch; DistributedDataParallel averages the gradients."""

    divides_state = False

    def __init__(self, **settings: Any) -> None:
        """``settings`` are those of DistributedDataParallel, such as ``find_unused_parameters=True``."""
        self._settings = settings

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        gpu = [world.device.index] if world.device.type == "cuda" else None
        ddp = DistributedDataParallel(model, device_ids=gpu, **self._settings)
        settle_buckets(ddp)
        return ddp

    def seat(self, world: World) -> tuple[int, int]:
        return world.rank, world.size

    def stream(self, world: World) -> int:
        return world.rank

    def parts(self, model: nn.Module, world: World, seed: int) -> Parts:
        return OnePart()

    @contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        if not isinstance(model, DistributedDataParallel):
            raise TypeError(f"no_sync needs the wrapped model, not a {type(model).__name__}")
        with model.no_sync():
            yield

    def saved(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        return model, parts


class Bare:
    """Nobody shares anything for the script: one process, or a script with collectives of its own."""

    divides_state = False

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        return model

    def seat(self, world: World) -> tuple[int, int]:
        return world.rank, world.size

    def stream(self, world: World) -> int:
        return world.rank

    def parts(self, model: nn.Module, world: World, seed: int) -> Parts:
        return OnePart()

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()

    def saved(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        return model, parts


class Sharded:
    """The parameters are DTensors, by ``fully_shard`` or ``parallelize_module``, before ``Run`` sees the model.

    Each rank saves its own shards, and any number of ranks can go on from them. The script joins the process group
    itself, since sharding needs it; the optimizer is made of the sharded parameters.
    ``same_batch`` gives every rank the whole batch, and the same random numbers, which is what a tensor-parallel model
    needs: what all ranks hold whole would be dropped out differently otherwise.
    """

    divides_state = True

    def __init__(self, *, same_batch: bool = False) -> None:
        self._same_batch = same_batch

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        return model

    def seat(self, world: World) -> tuple[int, int]:
        return (0, 1) if self._same_batch else (world.rank, world.size)

    def stream(self, world: World) -> int:
        return 0 if self._same_batch else world.rank

    def parts(self, model: nn.Module, world: World, seed: int) -> Parts:
        return OnePart()

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

    def saved(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        from rekindle.training.sharded_state import ShardedModel, ShardedOptimizer

        sharded = {
            name: ShardedOptimizer(model, part) if isinstance(part, torch.optim.Optimizer) else part
            for name, part in parts.items()
        }
        return ShardedModel(model), sharded
