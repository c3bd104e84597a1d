"""Training with ``rekindle.Run`` in which rank 1 leaves the loop over the batches of the second epoch early."""

import os

import torch
from torch.utils.data import TensorDataset

from rekindle import Run

data = TensorDataset(torch.arange(40, dtype=torch.float32).reshape(40, 1))


def run_break():
    network = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    with Run(model=network, optimizer=optimizer) as run:
        for epoch in run.epochs(3):
            for number, (batch,) in enumerate(run.batches(data, global_batch=4)):
                if epoch == 1 and number == 6 and run.rank == 1 and os.environ["REKINDLE_ATTEMPT"] == "1":
                    break
                optimizer.zero_grad()
                loss = run.model(batch).mean()
                loss.backward()
                optimizer.step()
                run.log(loss=loss)


run_break()
