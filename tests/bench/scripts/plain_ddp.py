"""A plain torchrun script, as PyTorch's multi-GPU tutorial teaches it: own snapshot file, resume by hand, no rekindle.

Every finished step is appended to ``$BENCH_DIR/steps-<rank>.log`` as ``<step> <pid> <seconds since the epoch>``.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """The model and the shape of one of its inputs."""
    if name == "resnet18":
        return resnet18(num_classes=10), (3, 32, 32)
    return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 10)), (32,)


class Trainer:
    def __init__(self, snapshot: Path, options: argparse.Namespace) -> None:
        self.snapshot, self.options = snapshot, options
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        module, self.shape = build(options.model)
        self.model = DistributedDataParallel(module)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.first = 0
        if snapshot.exists():
            saved = torch.load(snapshot, weights_only=True)
            module.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.first = saved["step"] + 1
        self.log = (Path(os.environ["BENCH_DIR"]) / f"steps-{self.rank}.log").open("a", buffering=1)

    def train(self) -> None:
        for step in range(self.first, self.options.steps):
            inputs = torch.randn(4, *self.shape, generator=torch.Generator().manual_seed(step * 97 + self.rank))
            loss = self.model(inputs).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.rank == 0 and (step + 1) % self.options.every == 0:
                self.save(step)
            self.log.write(f"{step} {os.getpid()} {time.time()}\n")
            time.sleep(self.options.pause)

    def save(self, step: int) -> None:
        temporary = self.snapshot.with_suffix(".tmp")
        state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(), "step": step}
        torch.save(state, temporary)
        temporary.replace(self.snapshot)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--model", choices=["small", "resnet18"], default="small")
    parser.add_argument("--every", type=int, default=1, help="steps between snapshots")
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument(
        "--start", type=float, default=0, help="seconds of imports and indexing before the first effect"
    )
    options = parser.parse_args()
    time.sleep(options.start)
    dist.init_process_group("gloo")
    directory = Path(os.environ.get("REKINDLE_SNAPSHOT_DIR", os.environ["BENCH_DIR"]))
    Trainer(directory / "snapshot.pt", options).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
