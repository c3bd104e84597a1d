"""ResNet-18 with a snapshot in each block of steps: mirror_steps.py BLOCKS STEPS OUT.

Rank 0 appends the seconds of each block to OUT.
"""

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset
from torchvision.models import resnet18

from rekindle import Run, SnapshotPolicy

BLOCKS, STEPS, OUT = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

torch.set_num_threads(1)
model = resnet18(num_classes=1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
data = TensorDataset(torch.randn(16 * STEPS, 3, 64, 64), torch.randint(1000, (16 * STEPS,)))
policy = SnapshotPolicy(every_steps=STEPS, keep_last=2)
with Run(model=model, optimizer=optimizer, device="cpu", snapshot_policy=policy) as run:
    for _ in run.epochs(BLOCKS):
        begin = time.monotonic()
        for images, labels in run.batches(data, global_batch=16):
            optimizer.zero_grad()
            (nn.functional.cross_entropy(run.model(images), labels) * run.batch_weight).backward()
            optimizer.step()
        if run.rank == 0:
            with OUT.open("a") as file:
                file.write(f"{time.monotonic() - begin}\n")
