"""Recipe: train a transformer whose layers are split: every rank computes some outputs of each layer.

    torchrun --nproc-per-node 2 -m rekindle.recipes.tensor
    rekindle submit --recipe tensor --ranks 2

All ranks see the whole batch. Linear layers come in pairs: the first is split by columns (a rank computes some of the
outputs), the second by rows (a rank takes just those as inputs), so that one all-reduce a pair brings the parts
together. Attention splits between heads.
"""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from rekindle.recipes import data, models, options
from rekindle.recipes.group import joined
from rekindle.recipes.loop import Plan, fit, make_repeatable
from rekindle.recipes.transformer import HEADS, Block
from rekindle.training.process_group import World
from rekindle.training.run import Run
from rekindle.training.strategies.strategy import ShardedStrategy

SPLIT: dict[str, ParallelStyle] = {
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.merge": RowwiseParallel(),
    "widen": ColwiseParallel(),
    "narrow": RowwiseParallel(),
}


def main() -> None:
    chosen = options.read_options(__doc__, *options.DATA, *options.SCHEDULE, "accumulate", models=("transformer",))
    make_repeatable(chosen.seed)
    with joined() as world:
        images = data.load(chosen, world)
        model = models.build(chosen.model, images.shape).to(world.device)
        split(model, world)
        # foreach would mix split and whole parameters in one call, which torch refuses
        optimizer = torch.optim.SGD(model.parameters(), chosen.lr, momentum=0.9, weight_decay=5e-4, foreach=False)
        plan = Plan(chosen, images, optimizer, world.device, sharers=1)
        strategy = ShardedStrategy(same_batch=True)
        with Run(
            model=model, optimizer=optimizer, metrics=plan.tally.metrics, seed=chosen.seed, strategy=strategy
        ) as run:
            fit(run, plan)


def split(model: nn.Sequential, world: World) -> None:
    """Raises ValueError where the heads cannot be shared out evenly."""
    if HEADS % world.size:
        raise ValueError(f"{HEADS} attention heads cannot be split over {world.size} ranks: start 1, 2 or {HEADS}")
    mesh = init_device_mesh(world.device.type, (world.size,))
    for layer in model:
        if isinstance(layer, Block):
            parallelize_module(layer, mesh, SPLIT)


if __name__ == "__main__":
    main()
