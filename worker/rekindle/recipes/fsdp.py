"""Recipe: train a model too large for one device with fully sharded data parallelism (FSDP2).

    torchrun --nproc-per-node 2 -m rekindle.recipes.fsdp --model transformer
    rekindle submit --recipe fsdp --ranks 2

Every rank keeps 1 / k of each parameter, its gradient and its optimizer state. A layer is gathered just before it is
used and freed afterwards. Unlike in recipe ``ddp``, the model is sharded before the optimizer is made, and each rank
saves its own shards.
"""

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from rekindle.recipes import data_sets, models
from rekindle.recipes.loop import fit
from rekindle.recipes.training_context import TrainingContext, sgd, start_recipe
from rekindle.training.process_group import World
from rekindle.training.sharded_strategy import ShardedStrategy


def main() -> None:
    with start_recipe("fsdp") as (options, world):
        images = data_sets.load(options, world)
        model = models.build(options.model, images.shape).to(world.device)
        shard(model, world)
        context = TrainingContext(options, images, sgd(model, options), world.device, data_parallel_size=world.size)
        with context.run(model, ShardedStrategy()) as run:
            fit(run, context)


def shard(model: nn.Sequential, world: World) -> None:
    """Shard each layer with parameters separately, so that no rank ever holds more than one full layer."""
    mesh = init_device_mesh(world.device.type, (world.size,))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


if __name__ == "__main__":
    main()
