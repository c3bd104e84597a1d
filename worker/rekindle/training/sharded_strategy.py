"""Training a model whose parameters are sharded among the ranks (DTensors)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule

from rekindle.training.process_group import World
from rekindle.training.snapshots.dtensor_io import find_dtensors, reshard
from rekindle.training.strategy import Strategy
from rekindle.training.training_state import Stateful


class ShardedModel:
    """Stateful for ``model``; its state holds DTensors, under the names that a whole model would use."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        return get_model_state_dict(self._model)

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Load ``state``, which may hold whole tensors too: every rank takes its part of them."""
        set_model_state_dict(self._model, reshard(state, find_dtensors(self.state_dict())))


class ShardedOptimizer:
    """Like ``ShardedModel``, for the optimizer of its parameters; states are stored by the parameters' names."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        return dict(get_optimizer_state_dict(self._model, self._optimizer))

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Load ``state``, in which a parameter that never had a gradient has none: torch must not reject that."""
        whole = reshard(state, find_dtensors(self.state_dict()))
        set_optimizer_state_dict(self._model, self._optimizer, whole, options=StateDictOptions(strict=False))


class ShardedStrategy(Strategy):
    """Train a model whose parameters are DTensors, by ``fully_shard`` or ``parallelize_module``, before ``Run``.

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
        if not isinstance(model, FSDPModule):
            yield
            return
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)

    def stateful_parts(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        sharded = {
            name: ShardedOptimizer(model, part) if isinstance(part, torch.optim.Optimizer) else part
            for name, part in parts.items()
        }
        return ShardedModel(model), sharded
