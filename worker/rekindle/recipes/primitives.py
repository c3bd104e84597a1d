"""What the parts of a data-parallel step do, printed for small tensors: parameters, all-reduce, split of a batch.

    torchrun --nproc-per-node 2 -m rekindle.recipes.primitives

Logs ``differing``: how many algorithms of recipe ``scratch`` give other bits than the first one.
"""

import torch

from rekindle.recipes.scratch import ALGORITHMS, NAMES, PlainLeNet
from rekindle.recipes.training_context import make_deterministic, process_group
from rekindle.training.process_group import World
from rekindle.training.reporter import report
from rekindle.training.sampler import shard_range


def main() -> None:
    make_deterministic(0)
    with process_group() as world:
        show_parameters(world)
        report(step=1, differing=show_all_reduce(world))
        show_split(world)


def show_parameters(world: World) -> None:
    """Print that every rank has its own copy of each parameter, on its own device and with a gradient of its own."""
    model = PlainLeNet(classes=10, channels=1).to(world.device)
    bias = dict(model.named_parameters())[NAMES[1]]
    say(world, f"get_params: {NAMES[1]} on {bias.device}, grad {bias.grad}, first values {rounded(bias[:3])}")


def show_all_reduce(world: World) -> int:
    """Print a tensor before and after each algorithm; returns how many of them give other bits than the first."""
    torch.manual_seed(world.rank)
    drawn, sums = torch.randn(1000, device=world.device), []
    for name, algorithm in ALGORITHMS.items():
        own, random = torch.full((1, 2), world.rank + 1.0, device=world.device), drawn.clone()
        before = rounded(own)
        algorithm([own, random])
        say(world, f"allreduce ({name}): {before} becomes {rounded(own)}")
        sums.append(random)
    return sum(not torch.equal(result, sums[0]) for result in sums)


def show_split(world: World) -> None:
    """Print which rows of a batch this rank gets."""
    batch = torch.arange(20).reshape(4, 5)
    own = shard_range(len(batch), world.rank, world.size)
    say(world, f"split_batch: of {rounded(batch)} rows {own.start} to {own.stop - 1}: {rounded(batch[own])}")


def rounded(tensor: torch.Tensor) -> object:
    return [rounded(each) for each in tensor] if tensor.dim() else round(tensor.item(), 3)


def say(world: World, text: str) -> None:
    print(f"[rank {world.rank}] {text}", flush=True)  # noqa: T201  # its purpose


if __name__ == "__main__":
    main()
