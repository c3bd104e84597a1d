"""How long the ways of ``all_reduce`` take, by the amount of data; a measurement, not a training.

    torchrun --nproc-per-node 2 -m rekindle.recipes.all_reduce_speed --all-reduce ring --kilobytes 64,1024

Logs ``ms_of_64_kB`` and so on: milliseconds from when all ranks are ready until this rank has the sum, the mean over
the ranks, once for each of the rounds.
"""

import argparse
import os
import time
from collections.abc import Callable

import torch

from rekindle.recipes.all_reduce import WAYS, AllReduce
from rekindle.recipes.group import joined
from rekindle.training.process_group import World
from rekindle.training.reporting.reporter import report

ROUNDS = 20
_WARM_UP = 2  # rounds that are not counted: connections are made in the first
_TENSORS = 8  # as of a small model, of which the buckets are filled


def main() -> None:
    chosen = _arguments()
    with joined() as world:
        for size in chosen.kilobytes:
            for step, milliseconds in enumerate(measure(world, WAYS[chosen.all_reduce], size)):
                report(step=step, **{f"ms_of_{size}_kB": milliseconds})
            report(load=os.getloadavg()[0])


def measure(world: World, way: AllReduce, kilobytes: int) -> list[float]:
    """The mean over the ranks, of each round."""
    gradients = [torch.ones(kilobytes * 1024 // 4 // _TENSORS, device=world.device) for _ in range(_TENSORS)]
    own = [_milliseconds(world, lambda: way(gradients)) for _ in range(_WARM_UP + ROUNDS)][_WARM_UP:]
    return [sum(one) / len(one) for one in zip(*world.gather(own), strict=True)]


def _milliseconds(world: World, action: Callable[[], None]) -> float:
    world.barrier()
    _wait_for_device(world)
    began = time.perf_counter()
    action()
    _wait_for_device(world)
    return 1000 * (time.perf_counter() - began)


def _wait_for_device(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--all-reduce", choices=list(WAYS), default="ring")
    parser.add_argument(
        "--kilobytes", type=lambda text: [int(size) for size in text.split(",")], default=[64, 1024], metavar="N,…"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
