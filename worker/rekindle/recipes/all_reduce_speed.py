"""Benchmark of the algorithms of ``scratch`` by the amount of data; not a training.

    torchrun --nproc-per-node 2 -m rekindle.recipes.all_reduce_speed --all-reduce ring --kilobytes 64,1024

Logs ``ms_of_64_kB`` and so on for each round: milliseconds from when all ranks are ready until a rank has the sum, as
the mean over the ranks.
"""

import argparse
import os
import time
from collections.abc import Callable

import torch

from rekindle.recipes.scratch import ALGORITHMS, AllReduce
from rekindle.recipes.training_context import process_group
from rekindle.training.process_group import World
from rekindle.training.reporter import report

ROUNDS = 20
_WARM_UP = 2  # rounds that are not counted: the first ones connect
_TENSORS = 8  # like a small model, whose tensors fill the buckets


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--all-reduce", choices=list(ALGORITHMS), default="ring")
    parser.add_argument(
        "--kilobytes", type=lambda text: [int(size) for size in text.split(",")], default=[64, 1024], metavar="N,…"
    )
    arguments = parser.parse_args()
    with process_group() as world:
        for size in arguments.kilobytes:
            for step, milliseconds in enumerate(measure(world, ALGORITHMS[arguments.all_reduce], size)):
                report(step=step, **{f"ms_of_{size}_kB": milliseconds})
            report(load=os.getloadavg()[0])


def measure(world: World, algorithm: AllReduce, kilobytes: int) -> list[float]:
    """Measure the milliseconds of each round, as the mean over the ranks."""
    gradients = [torch.ones(kilobytes * 1024 // 4 // _TENSORS, device=world.device) for _ in range(_TENSORS)]
    own = [_milliseconds(world, lambda: algorithm(gradients)) for _ in range(_WARM_UP + ROUNDS)][_WARM_UP:]
    return [sum(one) / len(one) for one in zip(*world.gather(own), strict=True)]


def _milliseconds(world: World, action: Callable[[], None]) -> float:
    world.barrier()
    _wait_for_device(world)
    started = time.perf_counter()
    action()
    _wait_for_device(world)
    return 1000 * (time.perf_counter() - started)


def _wait_for_device(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


if __name__ == "__main__":
    main()
