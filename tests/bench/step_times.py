"""What measuring steps costs a training, as a share of its step time: blocks of steps with and without it, in turn.

    torchrun --standalone --nproc-per-node=2 tests/bench/step_times.py [--model tiny|mlp|resnet18] [--rounds 25]

Prints the median over the rounds of a block's time with it by that of the block of the same round without: of the
processor time of the training thread, which other processes of the machine hardly change, and of the time by the clock.
"""

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset, dataloader
from torchvision.models import resnet18

from rekindle.rank.step_timer import StepTimer

MODELS = {"tiny": ((8,), 100), "mlp": ((256,), 50), "resnet18": ((3, 64, 64), 4)}  # shape of a sample; steps a block
PLACES: list[tuple[Any, str]] = [
    (dataloader._BaseDataLoaderIter, "__next__"),
    (torch.autograd, "_engine_run_backward"),
    (dist.distributed_c10d.Work, "wait"),
    (dist, "_broadcast_coalesced"),
    (optimizers, "_global_optimizer_pre_hooks"),
    (optimizers, "_global_optimizer_post_hooks"),
]


def build(name: str) -> nn.Module:
    if name == "resnet18":
        return resnet18(num_classes=10)
    width = 8 if name == "tiny" else 256
    return nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 10)
    )


def current() -> list[Any]:
    found = [getattr(owner, name) for owner, name in PLACES]
    return [type(each)(each) if isinstance(each, dict) else each for each in found]


def switch(state: list[Any]) -> None:
    for (owner, name), value in zip(PLACES, state, strict=True):
        setattr(owner, name, value)


def clocks() -> tuple[float, float]:
    return time.thread_time(), time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="mlp")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    shape, block = MODELS[options.model]
    model = DistributedDataParallel(build(options.model))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(8 * block, *shape), torch.randint(10, (8 * block,)))
    loader = DataLoader(data, batch_size=8)
    off = current()
    with tempfile.TemporaryDirectory() as directory:
        timer = StepTimer(Path(directory, "steps.json"), 2)
        timer.install()
        states, seconds = [off, current()], ([], [])
        for number in range(2 * (options.rounds + 1)):
            measured = (number + number // 2) % 2
            switch(states[measured])
            dist.barrier()
            began = clocks()
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            if number >= 2:
                seconds[measured].append([(now - then) / block for now, then in zip(clocks(), began, strict=True)])
            timer._marks = []
        samples = len(timer._samples)
    if dist.get_rank() == 0:
        pairs = list(zip(*seconds, strict=True))
        busy, clock = (statistics.median(on[each] / without[each] for without, on in pairs) - 1 for each in (0, 1))
        step = statistics.median(each[1] for each in seconds[0]) * 1e3
        sys.stdout.write(
            f"{options.model}: {step:.2f} ms a step, 1 of {timer._every} sampled ({samples} kept): processor time "
            f"{busy:+.2%}, clock {clock:+.2%}\n"
        )
    with suppress(RuntimeError):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
