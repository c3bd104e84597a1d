"""A ``Run`` with mixed precision, worker processes and a compiled model; its last line is a digest of all weights.

Argument: the step after which it kills itself in the first attempt; 0 for never.
"""

import hashlib
import os
import signal
import sys

import torch
from torch.utils.data import Dataset

from rekindle import Run


class Noise(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(32, generator=generator), index % 4


if __name__ == "__main__":
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(64, 4)
    )
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
    with Run(model=layers, optimizer=optimizer) as run:
        compiled = torch.compile(run.model) if run.device.type == "cuda" else run.model
        for _ in run.epochs(2):
            for inputs, labels in run.batches(Noise(), global_batch=16, num_workers=2):
                with torch.autocast(run.device.type, dtype=torch.bfloat16):
                    loss = torch.nn.functional.cross_entropy(compiled(inputs), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.log(loss=loss)
                if run.step == int(sys.argv[1]) and os.environ["REKINDLE_ATTEMPT"] == "1":
                    os.kill(os.getpid(), signal.SIGKILL)
        weights = b"".join(value.detach().cpu().numpy().tobytes() for value in run.module.state_dict().values())
        print(f"weights {hashlib.sha256(weights).hexdigest()}", flush=True)
