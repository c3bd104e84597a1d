"""Recipe: train with DataParallel, one process for all GPUs of a machine; kept for comparison with recipe ddp.

    python -m rekindle.recipes.dp --epochs 20
    rekindle submit --recipe dp --ranks 1

In every step one process copies the model to all GPUs, a thread for each computes a part of the batch, and the
gradients are added up on the first GPU. On a CPU DataParallel hands the whole batch to the model, as
recipe ``single`` does.
"""

from collections.abc import Callable
from itertools import permutations

import torch
from torch import nn

from rekindle.recipes import data, models, options
from rekindle.recipes.group import joined, require_one_rank
from rekindle.recipes.loop import Plan, fit, make_repeatable, sgd
from rekindle.training.process_group import World
from rekindle.training.run import Run
from rekindle.training.strategies.strategy import NoStrategy


class AllDevices(NoStrategy):
    """The model on the first GPU, and copies of it on the others for the length of a step."""

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        count = torch.cuda.device_count() if world.device.type == "cuda" else 0
        refuse_unlinked(count, torch.cuda.can_device_access_peer)
        return nn.DataParallel(model, device_ids=list(range(count)) or None)


def refuse_unlinked(count: int, linked: Callable[[int, int], bool]) -> None:
    """Raises RuntimeError where GPUs cannot copy to each other directly: there DataParallel was seen to end in NaN."""
    missing = [pair for pair in permutations(range(count), 2) if not linked(*pair)]
    if missing:
        pairs = ", ".join(f"{one} to {other}" for one, other in missing)
        raise RuntimeError(
            f"DataParallel needs peer-to-peer links between all {count} GPUs, and there is none from {pairs} (see "
            "`nvidia-smi topo -p2p r`): use recipe ddp, or make one GPU visible with CUDA_VISIBLE_DEVICES"
        )


def main() -> None:
    chosen = options.read_options(__doc__, *options.DATA, *options.SCHEDULE, "accumulate", models=models.MODELS)
    make_repeatable(chosen.seed)
    with joined() as world:
        require_one_rank(world, "dp")
        images = data.load(chosen, world, side=models.side_for(chosen.model))
        model = models.build(chosen.model, images.shape)
        plan = Plan(chosen, images, sgd(model, chosen), world.device, sharers=1)
        with Run(
            model=model, optimizer=plan.optimizer, metrics=plan.tally.metrics, seed=chosen.seed, strategy=AllDevices()
        ) as run:
            fit(run, plan)


if __name__ == "__main__":
    main()
