"""Let DistributedDataParallel rebuild its gradient buckets before the first step instead of after it.

DDP regroups its buckets once, after the first backward pass. With three ranks or more the position of a gradient in its
bucket decides in which order the ranks' parts are added, so the first step after *every* start is summed in another
order than the same step of a training that was never interrupted, and the weights differ in the last bits. A backward
pass before the first step makes the regrouping part of the start: every step then has the same buckets.
"""

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def rebuild_buckets(ddp: DistributedDataParallel) -> None:
    """Run one backward pass through all parameters, but through no layer: it needs no data and changes no state.

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
