"""Recipe: train with DataParallel, one process for all GPUs of a machine; for comparison with recipe ``ddp``.

    python -m rekindle.recipes.dp --epochs 20
    rekindle submit --recipe dp --ranks 1

In every step one process copies the model to all GPUs, one thread per GPU computes a chunk of the batch, and the
gradients are summed on the first GPU. On a CPU DataParallel passes the whole batch to the model, as recipe ``single``
does.
"""

from collections.abc import Callable
from itertools import permutations

import torch
from torch import nn

from rekindle.recipes import data, models
from rekindle.recipes.loop import fit
from rekindle.recipes.training_context import TrainingContext, sgd, start_recipe
from rekindle.training.method import Bare
from rekindle.training.process_group import World


class DataParallelStrategy(Bare):
    """The model on the first GPU, copied to the others for the duration of a step."""

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        count = torch.cuda.device_count() if world.device.type == "cuda" else 0
        validate_peer_access(count, torch.cuda.can_device_access_peer)
        return nn.DataParallel(model, device_ids=list(range(count)) or None)


def validate_peer_access(count: int, can_access: Callable[[int, int], bool]) -> None:
    """Raises RuntimeError where GPUs cannot copy to each other directly: DataParallel was observed to produce NaN."""
    missing = [pair for pair in permutations(range(count), 2) if not can_access(*pair)]
    if missing:
        pairs = ", ".join(f"{one} to {other}" for one, other in missing)
        raise RuntimeError(
            f"DataParallel needs peer-to-peer links between all {count} GPUs, and there is none from {pairs} (see "
            "`nvidia-smi topo -p2p r`): use recipe ddp, or make one GPU visible with CUDA_VISIBLE_DEVICES"
        )


def main() -> None:
    with start_recipe("dp", single_process=True) as (options, world):
        images = data.load(options, world)
        model = models.build(options.model, images.shape)
        context = TrainingContext(options, images, sgd(model, options), world.device, data_parallel_size=1)
        with context.run(model, DataParallelStrategy()) as run:
            fit(run, context)


if __name__ == "__main__":
    main()
