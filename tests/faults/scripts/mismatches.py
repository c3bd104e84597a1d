"""DDP training in which one rank does in another way in every attempt what the others do not.

The arguments: ``reports`` or ``plain``, then the mismatches, one for each attempt. The functions are named as they are:
the guilty line is in the one of that name.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS, GUILTY_STEP, EPOCHS = 10, 6, 3  # steps are those of an epoch; the mismatch is in the second one


class Data(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.ones(4) * index


class Stuck(Data):
    def __getitem__(self, index):
        return loader(index)


def early_exit():
    sys.exit(0)


def other_op():
    dist.broadcast(torch.ones(3), src=0)


def other_shape():
    dist.all_reduce(torch.ones(1000))


def other_dtype():
    dist.all_reduce(torch.ones(3, dtype=torch.float64))


def other_group(group):
    dist.all_reduce(torch.ones(3), group=group)


def sleep():
    time.sleep(3600)


def spin():
    while True:
        pass


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def loader(index):
    print("guilty at", time.time())
    time.sleep(3600)
    return index


def evaluation(model):
    model.eval()
    for _ in range(5):
        model(torch.ones(2, 4))
    model.train()


class Training:
    def __init__(self, kind, reports):
        self.kind, self.reports = kind, reports
        dist.init_process_group("gloo")
        self.group = dist.new_group(list(range(dist.get_world_size())))
        self.is_guilty = dist.get_rank() == (0 if kind == "evaluation" else 1)
        network = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        self.model = DistributedDataParallel(network)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.step = 0

    def run(self):
        for epoch in range(EPOCHS):
            self.train_epoch(at_fault=self.is_guilty and epoch == 1)
            dist.all_reduce(torch.ones(3))  # a metric of the epoch
            dist.all_reduce(torch.ones(3), group=self.group)
        dist.destroy_process_group()

    def train_epoch(self, at_fault):
        data = Stuck() if at_fault and self.kind == "loader" else Data()
        for number, batch in enumerate(DataLoader(data, batch_size=2)):
            if at_fault and number == GUILTY_STEP:
                print("guilty at", time.time())
                if self.kind == "unequal_batches":
                    return
                self.misbehave()
            if number == STEPS:
                return
            self.optimizer.zero_grad()
            self.model(batch).sum().backward()
            self.optimizer.step()
            self.step += 1
            if self.reports:
                import rekindle

                rekindle.report(step=self.step)
            time.sleep(0.02)

    def misbehave(self):
        arguments = {"evaluation": [self.model], "other_group": [self.group]}.get(self.kind, [])
        if self.kind not in ("loader", "none"):
            globals()[self.kind](*arguments)


def main():
    reports, *kinds = sys.argv[1:]
    attempt = int(os.environ["REKINDLE_ATTEMPT"])
    Path(os.environ["REKINDLE_SNAPSHOT_DIR"], f"progress-{attempt}").touch()
    kind = kinds[attempt - 1] if attempt <= len(kinds) else "none"
    Training(kind, reports=reports == "reports").run()


if __name__ == "__main__":
    main()
