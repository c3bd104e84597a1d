"""What the parts of a data-parallel training do, printed by every rank for small tensors; no training.

    torchrun --nproc-per-node 2 -m rekindle.recipes.primitives step
    torchrun --nproc-per-node 2 -m rekindle.recipes.primitives samples

``step`` shows parameters, all-reduce and the split of a batch, and logs ``differing``: how many algorithms of recipe
``scratch`` give other bits than the first. ``samples`` shows which of eight integers torch's DistributedSampler gives a
rank in each epoch, and logs ``new_samples``: how many of the last epoch were on another rank in the epoch before.
"""

import argparse
from typing import Any

import torch
from torch.utils.data import DistributedSampler, TensorDataset

from rekindle.recipes.loop import print_line
from rekindle.recipes.scratch import ALGORITHMS, NAMES, PlainLeNet
from rekindle.recipes.training_context import make_deterministic, process_group
from rekindle.training.process_group import World
from rekindle.training.reporter import report
from rekindle.training.sampler import shard_range

SAMPLES, EPOCHS = 8, 2


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("part", choices=["step", "samples"])
    parser.add_argument("--no-set-epoch", action="store_true", help="with samples: forget sampler.set_epoch(epoch)")
    arguments = parser.parse_args()
    make_deterministic(0)
    with process_group() as world:
        if arguments.part == "samples":
            report(step=EPOCHS, new_samples=show_samples(world, calls_set_epoch=not arguments.no_set_epoch))
            return
        bias = dict(PlainLeNet(classes=10, channels=1).to(world.device).named_parameters())[NAMES[1]]
        first = rounded(bias[:3])
        print_line(world, f"get_params: {NAMES[1]} on {bias.device}, grad {bias.grad}, first values {first}")
        report(step=1, differing=show_all_reduce(world))
        batch = torch.arange(20).reshape(4, 5)
        own = shard_range(len(batch), world.rank, world.size)
        print_line(world, f"split_batch: of {rounded(batch)} rows {own.start} to {own.stop - 1}: {rounded(batch[own])}")


def show_all_reduce(world: World) -> int:
    """Print a tensor before and after each algorithm; returns how many of them give other bits than the first."""
    torch.manual_seed(world.rank)
    drawn, sums = torch.randn(1000, device=world.device), []
    for name, algorithm in ALGORITHMS.items():
        own, random = torch.full((1, 2), world.rank + 1.0, device=world.device), drawn.clone()
        before = rounded(own)
        algorithm([own, random])
        print_line(world, f"allreduce ({name}): {before} becomes {rounded(own)}")
        sums.append(random)
    return sum(not torch.equal(result, sums[0]) for result in sums)


def show_samples(world: World, *, calls_set_epoch: bool) -> int:
    """Print this rank's samples of each epoch; returns how many of the last one all ranks together did not have."""
    data = TensorDataset(torch.arange(SAMPLES))
    sampler: DistributedSampler[Any] = DistributedSampler(data, world.size, world.rank)
    epochs: list[list[int]] = []
    for epoch in range(EPOCHS):
        if calls_set_epoch:
            sampler.set_epoch(epoch)
        epochs.append([int(index) for index in sampler])
        print_line(world, f"epoch {epoch}: {epochs[-1]}")
    return sum(world.gather(len({*epochs[-1]} - {*epochs[-2]})))


def rounded(tensor: torch.Tensor) -> object:
    return [rounded(each) for each in tensor] if tensor.dim() else round(tensor.item(), 3)


if __name__ == "__main__":
    main()
