"""A model cut into stages, one for each rank, and its whole state as a snapshot keeps it."""

from collections import OrderedDict
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from rekindle.training.data.sample_order import shard_range
from rekindle.training.process_group import World
from rekindle.training.strategies.strategy import Strategy
from rekindle.training.training_state import Stateful


def cut(model: nn.Sequential, rank: int, ranks: int) -> nn.Sequential:
    """The consecutive layers of ``rank``, under the names that they have in the whole model.

    A layer without parameters goes with the one before it. Raises ValueError for more ranks than layers.
    """
    beginnings = [place for place, layer in enumerate(model) if next(layer.parameters(), None) is not None]
    if len(beginnings) < ranks:
        raise ValueError(f"the model has {len(beginnings)} layers, too few for a pipeline of {ranks} ranks")
    own = shard_range(len(beginnings), rank, ranks)
    start = 0 if rank == 0 else beginnings[own.start]
    stop = len(model) if rank == ranks - 1 else beginnings[own.stop]
    return nn.Sequential(OrderedDict((str(place), model[place]) for place in range(start, stop)))


class Stages(Strategy):
    """The strategy of a pipeline: every rank has a stage, and gets the batches of all."""

    is_sharded = True

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        self._world = world
        return model

    def data_shard(self, world: World) -> tuple[int, int]:
        return 0, 1

    def stateful_parts(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        whole = {
            name: _AllOptimizers(model, part, self._world) if isinstance(part, torch.optim.Optimizer) else part
            for name, part in parts.items()
        }
        return _AllStages(model, self._world), whole


class _AllStages:
    """Stateful for the stages of all ranks, as one model."""

    def __init__(self, stage: nn.Module, world: World) -> None:
        self._stage, self._world = stage, world

    def state_dict(self) -> dict[str, Any]:
        return _joined(self._world.gather(_on_cpu(dict(self._stage.state_dict()))))

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._stage.load_state_dict({name: state[name] for name in self._stage.state_dict()})


class _AllOptimizers:
    """Stateful for the optimizers of all stages; states go by the parameters' names in the whole model."""

    def __init__(self, stage: nn.Module, optimizer: torch.optim.Optimizer, world: World) -> None:
        self._stage, self._optimizer, self._world = stage, optimizer, world

    def state_dict(self) -> dict[str, Any]:
        own = get_optimizer_state_dict(self._stage, self._optimizer)
        parts: list[dict[str, Any]] = self._world.gather(_on_cpu(dict(own)))
        groups = [{**group} for group in parts[0]["param_groups"]]
        for place, group in enumerate(groups):
            group["params"] = [name for part in parts for name in part["param_groups"][place]["params"]]
        return {"state": _joined([part["state"] for part in parts]), "param_groups": groups}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        own = {name for name, _ in self._stage.named_parameters()}
        groups = [
            {**group, "params": [name for name in group["params"] if name in own]} for group in state["param_groups"]
        ]
        states = {name: value for name, value in state["state"].items() if name in own}
        set_optimizer_state_dict(
            self._stage,
            self._optimizer,
            {"state": states, "param_groups": groups},
            options=StateDictOptions(strict=False),  # a parameter that never had a gradient has no state
        )


def _on_cpu(value: Any) -> Any:
    """Else every rank would unpickle the tensors of the others onto their GPUs, and hold memory there."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    return [_on_cpu(item) for item in value] if isinstance(value, list) else value


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}
