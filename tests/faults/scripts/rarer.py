"""Two replicas whose records become rarer as they grow; each prints the steps that it has recorded."""

import json
import sys
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from rekindle import Run
from rekindle.training import step_digests

step_digests._MAX_BYTES = 1500
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(6)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with Run(model=model, optimizer=optimizer, device="cpu", digests=1) as run:
    run._digests.path = Path(f"digests-{run.rank}.jsonl")
    for _ in run.epochs(1):
        for (x,) in run.batches(TensorDataset(torch.randn(240, 4)), global_batch=4):
            optimizer.zero_grad()
            run.model(x).square().mean().backward()
            optimizer.step()
    lines = map(json.loads, run._digests.path.read_text().splitlines())
    steps = [line["step"] for line in lines if "step" in line]
    sys.stdout.write(json.dumps({"rank": run.rank, "steps": steps}) + "\n")
