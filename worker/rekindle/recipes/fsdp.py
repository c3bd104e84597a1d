"""Recipe: train a model too large for one device with fully sharded data parallelism (FSDP2).

    torchrun --nproc-per-node 2 -m rekindle.recipes.fsdp --model transformer
    rekindle submit --recipe fsdp --ranks 2

Every rank keeps 1 / k of each parameter, its gradient and its optimizer state. A layer is gathered just before it is
used and dropped afterwards. Against recipe ``ddp``: the model is sharded before the optimizer is made, and each
rank saves its own part.
"""

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from rekindle.recipes import data, models, options
from rekindle.recipes.group import joined
from rekindle.recipes.loop import Plan, fit, make_repeatable, sgd
from rekindle.training.process_group import World
from rekindle.training.run import Run
from rekindle.training.strategies.strategy import ShardedStrategy


def main() -> None:
    chosen = options.read_options(
        __doc__,
        *options.DATA,
        *options.SCHEDULE,
        *options.SHARED_BATCH,
        "accumulate",
        models=models.MODELS,
        precisions=("no", "bf16"),
    )
    make_repeatable(chosen.seed)
    with joined() as world:
        images = data.load(chosen, world, side=models.side_for(chosen.model))
        model = models.build(chosen.model, images.shape).to(world.device)
        shard(model, world)
        plan = Plan(chosen, images, sgd(model, chosen), world.device, sharers=world.size)
        with Run(
            model=model,
            optimizer=plan.optimizer,
            metrics=plan.tally.metrics,
            seed=chosen.seed,
            strategy=ShardedStrategy(),
        ) as run:
            fit(run, plan)


def shard(model: nn.Sequential, world: World) -> None:
    """Each layer with parameters is gathered by itself, so that no rank ever holds more than one of them whole."""
    mesh = init_device_mesh(world.device.type, (world.size,))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


if __name__ == "__main__":
    main()
