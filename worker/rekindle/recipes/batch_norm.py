"""Batch normalisation over the batches of all ranks, on every device; torch's own SyncBatchNorm needs a GPU."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def synchronise(model: nn.Module) -> None:
    """Let every batch normalisation inside ``model`` take its statistics from all ranks."""
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(model, name, SyncedBatchNorm.like(child))
        else:
            synchronise(child)


class SyncedBatchNorm(nn.BatchNorm2d):
    """Counts, sums and squares of all ranks are added up before anything is normalised: one collective a layer.

    Every rank must call it equally often, or all of them wait for ever.
    """

    @classmethod
    def like(cls, norm: nn.BatchNorm2d) -> "SyncedBatchNorm":
        """With the parameters and running statistics of ``norm``."""
        synced = cls(norm.num_features, norm.eps, norm.momentum)
        synced.load_state_dict(norm.state_dict())
        return synced

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        exact = x.float()  # half precision would lose the variance in the difference below
        own = torch.tensor([x.numel() / x.size(1)], device=x.device)
        totals: Tensor = _Sum.apply(torch.cat([own, exact.sum((0, 2, 3)), exact.square().sum((0, 2, 3))]))
        count, (sums, squares) = totals[:1], totals[1:].chunk(2)
        mean = sums / count
        variance = squares / count - mean.square()
        self._keep_running(mean.detach(), variance.detach() * count / (count - 1))
        scale = self.weight / (variance + self.eps).sqrt()
        shift = self.bias - mean * scale
        y: Tensor = (exact * scale[:, None, None] + shift[:, None, None]).to(x.dtype)
        return y

    @torch.no_grad()
    def _keep_running(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = 0.1 if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance, momentum)


class _Sum(torch.autograd.Function):
    """The sum over all ranks; each rank's part contributes to every rank's loss, so the gradient is summed too."""

    @staticmethod
    def forward(context: Any, own: Tensor) -> Tensor:
        total = own.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total
