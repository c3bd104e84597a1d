"""A data loader's worker is killed in the middle of an epoch, once."""

import os
import signal
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

MARK = Path(os.environ["REKINDLE_SNAPSHOT_DIR"]) / "happened"


class Numbers(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index == 10 and not MARK.exists():
            MARK.touch()
            time.sleep(0.5)  # what was loaded before has arrived
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(index)


if __name__ == "__main__":
    for number in DataLoader(Numbers(), batch_size=1, num_workers=2):
        print(f"step {int(number) + 1}", flush=True)
