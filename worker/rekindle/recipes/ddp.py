"""Recipe: train on several ranks with DistributedDataParallel.

    torchrun --nproc-per-node 2 -m rekindle.recipes.ddp --epochs 20
    rekindle submit --recipe ddp --ranks 2

Every rank has the whole model and a shard of each batch; the backward pass averages the gradients. The loop is that of
recipe ``single``: a step on k ranks computes what one rank would on the same batch. Kill it at any time and start it
again: it ends with bit-identical weights.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rekindle.recipes import data_sets, models
from rekindle.recipes.catalog import Options
from rekindle.recipes.loop import fit
from rekindle.recipes.training_context import TrainingContext, sgd, start_recipe
from rekindle.training.deterministic_elastic import DeterministicElastic
from rekindle.training.strategy import DDPStrategy, Strategy


def main() -> None:
    with start_recipe("ddp") as (options, world):
        images = data_sets.load(options, world)
        model = models.build(options.model, images.shape)
        if options.sync_batchnorm:
            convert_sync_batchnorm(model)
        context = TrainingContext(options, images, sgd(model, options), world.device, data_parallel_size=world.size)
        with context.run(model, choose_strategy(options), scaler=context.scaler) as run:
            fit(run, context)


def choose_strategy(options: Options) -> Strategy:
    """Choose DDP, or virtual shards, with which the weights are bit-identical on any number of ranks."""
    if options.deterministic_elastic is not None:
        return DeterministicElastic(options.deterministic_elastic)
    return DDPStrategy(find_unused_parameters=options.find_unused_parameters)


def convert_sync_batchnorm(model: nn.Module) -> None:
    """Replace every batch normalization inside ``model`` by one that computes its statistics over all ranks."""
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            synced = SyncBatchNorm(child.num_features, child.eps, child.momentum)
            synced.load_state_dict(child.state_dict())
            setattr(model, name, synced)
        else:
            convert_sync_batchnorm(child)


class SyncBatchNorm(nn.BatchNorm2d):
    """Batch normalization over the batches of all ranks, on every device; torch's own SyncBatchNorm needs a GPU.

    It sums counts, values and squares over all ranks before it normalizes: one collective per layer and direction.

    Every rank must call it equally often, otherwise all of them hang.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        exact = x.float()  # half precision would lose the variance in the difference below
        own = torch.tensor([x.numel() / x.size(1)], device=x.device)
        totals: Tensor = _Sum.apply(torch.cat([own, exact.sum((0, 2, 3)), exact.square().sum((0, 2, 3))]))
        count, (sums, squares) = totals[:1], totals[1:].chunk(2)
        mean = sums / count
        variance = squares / count - mean.square()
        self._update_running_stats(mean.detach(), variance.detach() * count / (count - 1))
        scale = self.weight / (variance + self.eps).sqrt()
        shift = self.bias - mean * scale
        y: Tensor = (exact * scale[:, None, None] + shift[:, None, None]).to(x.dtype)
        return y

    @torch.no_grad()
    def _update_running_stats(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = 0.1 if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance, momentum)


class _Sum(torch.autograd.Function):
    """Sum over all ranks; each rank's values contribute to every rank's loss, so the gradient is summed too."""

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


if __name__ == "__main__":
    main()
