"""What digests cost a training, as a share of its step time: blocks of steps with another interval each, in turn.

    torchrun --standalone --nproc-per-node=2 tests/bench/digests.py [--model mlp|resnet18] [--rounds 5]

Prints a table: the median over the rounds of a block's time by that of the block of the same round without digests.
"""

import argparse
import statistics
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset
from torchvision.models import resnet18

from rekindle import Run, SnapshotPolicy

INTERVALS = (0, 100, 10, 1)
MODELS = {"mlp": (64,), "resnet18": (3, 64, 64)}  # and the shape of a sample


def build(name: str) -> nn.Module:
    if name == "resnet18":
        return resnet18(num_classes=10)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="resnet18")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--block", type=int, default=100, help="steps of a block")
    options = parser.parse_args()
    model = build(options.model)
    optimizer = torch.optim.AdamW(model.parameters())
    batch, steps = 16, options.block * len(INTERVALS) * (options.rounds + 1)
    data = TensorDataset(torch.randn(batch, *MODELS[options.model]), torch.randint(10, (batch,)))
    blocks: dict[int, list[float]] = {interval: [] for interval in INTERVALS}
    snapshots = SnapshotPolicy(every_steps=1 << 30)
    with tempfile.TemporaryDirectory() as directory, Run(
        model=model, optimizer=optimizer, device="cpu", directory=f"{directory}/snapshots", snapshot_policy=snapshots
    ) as run:  # fmt: skip
        started = time.monotonic()
        for _ in run.epochs(steps):
            for x, y in run.batches(data, global_batch=batch):
                if run.step % options.block == 0:
                    now = time.monotonic()
                    blocks[run._digests.interval if run._digests.interval in blocks else 0].append(now - started)
                    started = now
                    run._digests.interval = INTERVALS[run.step // options.block % len(INTERVALS)]
                optimizer.zero_grad()
                nn.functional.cross_entropy(run.model(x), y).backward()
                optimizer.step()
        if run.rank == 0:
            report(options, blocks, sum(each.numel() for each in model.parameters()))


def report(options: argparse.Namespace, blocks: dict[int, list[float]], parameters: int) -> None:
    base = blocks[0][-options.rounds :]
    sys.stdout.write(f"{options.model}, {parameters / 1e6:.1f} million parameters, {options.block} steps a block\n")
    sys.stdout.write(f"{'every':>8} {'ms a step':>10} {'more':>8}\n")
    for interval, times in blocks.items():
        own = times[-options.rounds :]
        ratio = statistics.median(mine / other for mine, other in zip(own, base, strict=False))
        step = statistics.median(own) / options.block
        sys.stdout.write(f"{interval or 'never':>8} {step * 1e3:>10.2f} {ratio - 1:>+8.1%}\n")


if __name__ == "__main__":
    main()
