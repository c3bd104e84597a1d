"""Training with ``rekindle.Run`` whose start takes long: the argument is its seconds."""

import hashlib
import sys
import time

import torch
from torch.utils.data import TensorDataset

from rekindle import Run

torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 8))
network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
time.sleep(float(sys.argv[1]))
with Run(model=network, optimizer=optimizer) as run:
    for _ in run.epochs(3):
        for (batch,) in run.batches(data, global_batch=4):
            optimizer.zero_grad()
            run.model(batch).pow(2).mean().backward()
            optimizer.step()
            print("step", run.step + 1, flush=True)
            time.sleep(0.1)
    weights = b"".join(each.detach().numpy().tobytes() for each in network.parameters())
    print("weights", hashlib.sha256(weights).hexdigest())
