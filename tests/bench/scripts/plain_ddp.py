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


class Trainer:
    def __init__(self, snapshot: Path, steps: int, width: int, pause: float) -> None:
        self.snapshot, self.steps, self.pause = snapshot, steps, pause
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 10))
        self.first = 0
        if snapshot.exists():
            saved = torch.load(snapshot, weights_only=True)
            layers.load_state_dict(saved["model"])
            self.first = saved["step"] + 1
        self.model = DistributedDataParallel(layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.log = (Path(os.environ["BENCH_DIR"]) / f"steps-{self.rank}.log").open("a", buffering=1)

    def train(self) -> None:
        for step in range(self.first, self.steps):
            inputs = torch.randn(16, 32, generator=torch.Generator().manual_seed(step * 97 + self.rank))
            loss = self.model(inputs).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.rank == 0:
                self.save(step)
            self.log.write(f"{step} {os.getpid()} {time.time()}\n")
            time.sleep(self.pause)

    def save(self, step: int) -> None:
        temporary = self.snapshot.with_suffix(".tmp")
        torch.save({"model": self.model.module.state_dict(), "step": step}, temporary)
        temporary.replace(self.snapshot)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--pause", type=float, default=0.05)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    folder = Path(os.environ.get("REKINDLE_SNAPSHOT_DIR", os.environ["BENCH_DIR"]))
    Trainer(folder / "snapshot.pt", options.steps, options.width, options.pause).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
