"""The state of a model whose parameters are sharded among the ranks (DTensors)."""

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

from rekindle.training.snapshots.storage.dtensor_io import find_dtensors, reshard


class ShardedModel:
    """Stateful for ``model``; its state holds DTensors, under the names that a whole model would use."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        return get_model_state_dict(self._model)

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """``state`` may hold whole tensors too: every rank takes its part of them."""
        set_model_state_dict(self._model, reshard(state, find_dtensors(self.state_dict())))


class ShardedOptimizer:
    """Like ``ShardedModel``, for the optimizer of its parameters; states are stored by the parameters' names."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        return dict(get_optimizer_state_dict(self._model, self._optimizer))

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """A parameter that never had a gradient has no state, which torch would report as an error."""
        whole = reshard(state, find_dtensors(self.state_dict()))
        set_optimizer_state_dict(self._model, self._optimizer, whole, options=StateDictOptions(strict=False))
