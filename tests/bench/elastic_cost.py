"""What it costs to train the same bits at any world size: a step with virtual shards against one of plain DDP.

    torchrun --nproc-per-node 2 tests/bench/elastic_cost.py --steps 30

The small residual network of the recipes, and an MLP that is all communication (little to compute for each weight).
The strategies take turns step by step, so that all see the same machine; the first round does not count. Rank 0 prints
medians over the steps of each, and their ratio to DDP's.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rekindle import DeterministicElastic
from rekindle.contract.environment import RankEnv
from rekindle.recipes.models import small_resnet
from rekindle.training import process_group
from rekindle.training.process_group import World
from rekindle.training.sampler import TrainingProgress, shard_range
from rekindle.training.strategy import DDPStrategy, Strategy

BATCH, CLASSES = 128, 10
Step = Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    world = process_group.join(RankEnv.read(os.environ), "cpu")
    for name, build, shape in (("small resnet", lambda: small_resnet(CLASSES), (1, 8, 8)), ("wide MLP", mlp, (256,))):
        strategies: dict[str, Strategy] = {"ddp": DDPStrategy()}
        strategies |= {f"{count} virtual shards": DeterministicElastic(count) for count in (world.size, 4, 8)}
        steps = {label: prepare(strategy, build(), shape, world) for label, strategy in strategies.items()}
        report(name, measure(steps, options.steps), world)
    process_group.leave(world)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, CLASSES))


def prepare(strategy: Strategy, model: nn.Module, shape: tuple[int, ...], world: World) -> Step:
    """One whole step of this rank, on data that is there already."""
    wrapped = strategy.wrap(model, world)
    microbatches = strategy.microbatches(wrapped, world, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    _, shards = strategy.data_shard(world)
    own = shard_range(shards, world.rank, world.size)
    batch = [torch.randn(len(shard_range(BATCH, each, shards)), *shape) for each in own]
    progress = TrainingProgress(samples=(len(batch[0]), BATCH), in_step=True)

    def step() -> None:
        microbatches.begin(progress)
        optimizer.zero_grad()
        for part in microbatches.of(batch[0] if isinstance(strategy, DDPStrategy) else batch, progress):
            loss: Tensor = wrapped(part).square().mean()
            loss.backward()
        optimizer.step()

    return step


def measure(steps: dict[str, Step], count: int) -> dict[str, float]:
    """Median seconds of a step that all ranks begin together."""
    taken: dict[str, list[float]] = {label: [] for label in steps}
    for _ in range(count + 1):
        for label, step in steps.items():
            dist.barrier()
            started = time.monotonic()
            step()
            taken[label].append(time.monotonic() - started)
    return {label: statistics.median(seconds[1:]) for label, seconds in taken.items()}


def report(name: str, medians: dict[str, float], world: World) -> None:
    if world.rank != 0:
        return
    print(f"{name}, {world.size} ranks, batch {BATCH}")
    for label, seconds in medians.items():
        print(f"  {label:20} {1000 * seconds:7.1f} ms   {seconds / medians['ddp']:.2f} x ddp")


if __name__ == "__main__":
    main()
