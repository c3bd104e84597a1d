"""Recipe: train a transformer with tensor parallelism: every rank computes some outputs of each layer.

    torchrun --nproc-per-node 2 -m rekindle.recipes.tensor
    rekindle submit --recipe tensor --ranks 2

All ranks see the whole batch. Linear layers come in pairs: the first is split by columns (a rank computes some of the
outputs), the second by rows (a rank uses exactly those as inputs), so that one all-reduce per pair combines them.
Attention is split by heads.
"""

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

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
    """Split the layers. Raises ValueError where the number of ranks does not divide the attention heads."""
    if HEADS % world.size:
        raise ValueError(f"{HEADS} attention heads cannot be split over {world.size} ranks: start 1, 2 or {HEADS}")
    mesh = init_device_mesh(world.device.type, (world.size,))
    for layer in model:
        if isinstance(layer, TransformerBlock):
            parallelize_module(layer, mesh, PARALLEL_STYLES)


if __name__ == "__main__":
    main()
