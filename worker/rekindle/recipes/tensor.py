"""Recipe: train with tensor parallelism: every rank computes some outputs of each layer.

    torchrun --nproc-per-node 2 -m rekindle.recipes.tensor
    rekindle submit --recipe tensor --ranks 2

All ranks see the whole batch. Linear layers come in pairs: the first is split by columns (a rank computes some of the
outputs), the second by rows (a rank uses exactly those as inputs), so that one all-reduce per pair combines them.
Attention is split by heads. A convolution (``--model convnet``) is split by its output channels, 64 into 16 on each of
four ranks, which are gathered for the next layer.
"""

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.functional import conv2d

from rekindle.recipes import data_sets, models
from rekindle.recipes.loop import fit
from rekindle.recipes.models import HEADS, TransformerBlock
from rekindle.recipes.training_context import TrainingContext, sgd, start_recipe
from rekindle.training.process_group import World
from rekindle.training.sharded_strategy import ShardedStrategy

PARALLEL_STYLES: dict[str, ParallelStyle] = {
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.merge": RowwiseParallel(),
    "widen": ColwiseParallel(),
    "narrow": RowwiseParallel(),
}


def main() -> None:
    with start_recipe("tensor") as (options, world):
        images = data_sets.load(options, world)
        model = models.build(options.model, images.shape).to(world.device)
        parallelize(model, world)
        # foreach would mix sharded and replicated parameters in one call, which torch rejects
        optimizer = sgd(model, options, foreach=False)
        context = TrainingContext(options, images, optimizer, world.device, data_parallel_size=1)
        with context.run(model, ShardedStrategy(same_batch=True)) as run:
            fit(run, context)


def parallelize(model: nn.Sequential, world: World) -> None:
    """Split the layers. Raises ValueError where the number of ranks does not divide attention heads or channels."""
    mesh = init_device_mesh(world.device.type, (world.size,))
    for index, layer in enumerate(model):
        if isinstance(layer, TransformerBlock):
            if HEADS % world.size:
                raise ValueError(
                    f"{HEADS} attention heads cannot be split over {world.size} ranks: start 1, 2 or {HEADS}"
                )
            parallelize_module(layer, mesh, PARALLEL_STYLES)
        elif isinstance(layer, nn.Conv2d):
            model[index] = SplitConv2d(layer, mesh)


class SplitConv2d(nn.Module):
    """A convolution of which each rank computes some output channels; the result has all of them."""

    def __init__(self, whole: nn.Conv2d, mesh: DeviceMesh) -> None:
        """Take this rank's share of ``whole``. Raises ValueError where the ranks cannot have equal shares."""
        super().__init__()
        if whole.out_channels % mesh.size() or whole.bias is None:
            raise ValueError(f"{whole.out_channels} channels cannot be split over {mesh.size()} ranks: start 1, 2 or 4")
        self.weight = nn.Parameter(distribute_tensor(whole.weight.detach(), mesh, [Shard(0)]))
        self.bias = nn.Parameter(distribute_tensor(whole.bias.detach(), mesh, [Shard(0)]))
        self._stride, self._padding = whole.stride, whole.padding

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = (cast("DTensor", each).to_local() for each in (self.weight, self.bias))
        own = conv2d(_SumOfGradients.apply(x), weight, bias, self._stride, self._padding)
        channels: Tensor = _AllChannels.apply(own)
        return channels


class _SumOfGradients(torch.autograd.Function):
    """The same input for every rank; its gradient is the sum of what the channels of all ranks contribute."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous()
        dist.all_reduce(total)
        return total


class _AllChannels(torch.autograd.Function):
    """The channels of all ranks in their order; what follows is the same on all, so each takes its own gradient."""

    @staticmethod
    def forward(context: Any, own: Tensor) -> Tensor:
        parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].chunk(dist.get_world_size(), dim=1)[dist.get_rank()].contiguous()


if __name__ == "__main__":
    main()
