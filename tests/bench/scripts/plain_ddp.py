"""A plain torchrun script, as PyTorch's multi-GPU tutorial teaches it: own snapshot file, resume by hand, no rekindle.

Every finished step is appended to ``$BENCH_DIR/steps-<rank>.log`` as ``<step> <pid> <seconds since the epoch>``. With
``--faults`` rank 1 does what the next of them names whenever its process has done six steps; ``faults.log`` has a
line of the same form for each, with the name.
"""

import argparse
import datetime
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torchvision.models import resnet18

APART = 6  # steps of a process before the next fault


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """The model and the shape of one of its inputs."""
    if name == "resnet18":
        return resnet18(num_classes=10), (3, 32, 32)
    return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 10)), (32,)


class Trainer:
    def __init__(self, options: argparse.Namespace, rank: int) -> None:
        self.options, self.rank, self.done, self.first = options, rank, 0, 0
        self.place = Path(os.environ["BENCH_DIR"])
        torch.manual_seed(0)
        self.module, self.shape = build(options.model)
        self.wrap()
        self.load()
        self.log = (self.place / f"steps-{self.rank}.log").open("a", buffering=1)

    def wrap(self) -> None:
        self.model = DistributedDataParallel(self.module)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    @property
    def snapshot(self) -> Path:
        return Path(os.environ.get("REKINDLE_SNAPSHOT_DIR", self.place)) / "snapshot.pt"

    def load(self) -> None:
        if self.snapshot.exists():
            self.restore(torch.load(self.snapshot, weights_only=True))

    def restore(self, saved: dict) -> None:
        self.module.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.first = saved.get("step", -1) + 1

    def state(self) -> dict:
        return {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def train(self) -> None:
        for step in range(self.first, self.options.steps):
            self.train_step(step)
            if (step + 1) % self.options.every == 0:
                self.save(step)
            self.finish_step(step)

    def train_step(self, step: int) -> None:
        inputs = torch.randn(4, *self.shape, generator=torch.Generator().manual_seed(step * 97 + self.rank))
        self.optimizer.zero_grad()
        self.model(inputs).square().mean().backward()
        self.optimizer.step()

    def save(self, step: int) -> None:
        if self.rank == 0:
            temporary = self.snapshot.with_suffix(".tmp")
            torch.save({**self.state(), "step": step}, temporary)
            temporary.replace(self.snapshot)

    def finish_step(self, step: int) -> None:
        line = f"{step} {os.getpid()} {time.time()}"
        self.log.write(f"{line}\n")
        self.done += 1
        faults = self.place / "faults.log"
        struck = len(faults.read_text().splitlines()) if faults.exists() else 0
        if self.rank == 1 and self.done % APART == 0 and struck < len(self.options.faults):
            name = self.options.faults[struck]
            with faults.open("a") as file:
                file.write(f"{line} {name}\n")
            print(f"\nplanted: {name}", file=sys.stderr, flush=True)
            failures()[name]()
        time.sleep(self.options.pause)


def failures() -> dict:
    """What a fault does, by name; the last four are none: healthy, and 15 s long."""
    import corpus  # of tests/faults/scripts

    return {
        **corpus.FAILURES,
        "evaluates silently": lambda: time.sleep(15),
        "evaluates and prints": lambda: [print("batch", each, flush=True) or time.sleep(0.5) for each in range(30)],
        "computes": compute,
        "slow loader": lambda: next(iter(DataLoader(Slow(), num_workers=1))),
    }


def compute() -> None:
    until = time.monotonic() + 15
    while time.monotonic() < until:
        torch.ones(64, 64) @ torch.ones(64, 64)


class Slow(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        time.sleep(15)
        return index


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--model", choices=["small", "resnet18"], default="small")
    parser.add_argument("--every", type=int, default=1, help="steps between snapshots")
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument(
        "--delay", type=float, default=0, help="seconds of imports and indexing before the first effect"
    )
    parser.add_argument("--faults", type=lambda names: names.split(","), default=[])
    parser.add_argument("--timeout", type=float, default=1800, help="of collectives, in seconds")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    time.sleep(options.delay)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    Trainer(options, dist.get_rank()).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
