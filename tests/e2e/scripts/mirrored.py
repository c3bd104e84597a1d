"""A training with dropout and heavy snapshots, whose weights it prints: mirrored.py EPOCHS PAUSE MEGABYTES.

An epoch has 20 steps and a snapshot.
"""

import hashlib
import sys
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from rekindle import Run, SnapshotPolicy

EPOCHS, PAUSE, MEGABYTES = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
model.register_buffer("ballast", torch.randn(MEGABYTES << 18))
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(320, 6, generator=torch.Generator().manual_seed(1))
policy = SnapshotPolicy(every_steps=20, keep_last=2)
with Run(model=model, optimizer=optimizer, device="cpu", snapshot_policy=policy) as run:
    for _ in run.epochs(EPOCHS):
        for a, b in run.batches(TensorDataset(x, (x.sum(1) > 0).long()), global_batch=16):
            optimizer.zero_grad()
            (nn.functional.cross_entropy(run.model(a), b) * run.batch_weight).backward()
            optimizer.step()
            if run.step % 20 == 19:
                model.ballast.mul_(-1.0001)  # other bits in each snapshot
            time.sleep(PAUSE)
digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
sys.stdout.write(f"weights sha256 {digest}\n")
