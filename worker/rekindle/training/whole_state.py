"""The whole state of a model whose parameters are divided among the ranks (DTensors), as a snapshot keeps it."""

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

_GATHERED = StateDictOptions(full_state_dict=True, cpu_offload=True)  # on rank 0; nothing on the others
_WHOLE = StateDictOptions(full_state_dict=True)


class WholeModel:
    """Stateful for ``model``. Both methods are called by all ranks; only rank 0's ``state_dict`` holds anything."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        return get_model_state_dict(self._model, options=_GATHERED)

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Every rank is given the whole state, and takes its part of it."""
        set_model_state_dict(self._model, state, options=_WHOLE)


class WholeOptimizer:
    """Like ``WholeModel``, for the optimizer of its parameters; states go by the parameters' names."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        return dict(get_optimizer_state_dict(self._model, self._optimizer, options=_GATHERED))

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        set_optimizer_state_dict(self._model, self._optimizer, state, options=_WHOLE)
