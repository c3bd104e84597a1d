"""A child process of the script is killed in the first two attempts: a worker of a data loader, or of ``mp.spawn``."""

import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

ATTEMPT = int(os.environ["REKINDLE_ATTEMPT"])


def killed_twice() -> None:
    if ATTEMPT < 3:
        os.kill(os.getpid(), signal.SIGKILL)


class Fatal(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            time.sleep(0.5)  # what was loaded before has arrived
            killed_twice()
        return torch.tensor(index)


def spawned(index):
    killed_twice()


if __name__ == "__main__":
    if sys.argv[1] == "loader":
        for _ in DataLoader(Fatal(), num_workers=1):
            pass
    else:
        torch.multiprocessing.spawn(spawned, nprocs=1)
