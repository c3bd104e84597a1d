"""Trains, saves a snapshot at the configured path, and looks for it when it starts."""

import os
import time
from dataclasses import asdict, dataclass

import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


@dataclass
class TrainerConfig:
    max_epochs: int
    batch_size: int
    snapshot_path: str
    save_every: int
    pause: float


@dataclass
class Snapshot:
    model_state: dict
    optimizer_state: dict
    finished_epoch: int


class Trainer:
    def __init__(self, config, model, optimizer, dataset):
        self.config = config
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.loader = DataLoader(dataset, batch_size=config.batch_size, sampler=DistributedSampler(dataset))
        self.epochs_run = 0
        self.model = model
        self.optimizer = optimizer
        self._load_snapshot()
        self.model = DDP(self.model)

    def _load_snapshot(self):
        try:
            with open(self.config.snapshot_path, "rb") as file:
                snapshot = Snapshot(**torch.load(file, map_location="cpu"))
        except FileNotFoundError:
            print("Snapshot not found. Training model from scratch")
            return
        self.model.load_state_dict(snapshot.model_state)
        self.optimizer.load_state_dict(snapshot.optimizer_state)
        self.epochs_run = snapshot.finished_epoch
        print(f"Resuming training from snapshot at Epoch {self.epochs_run}")

    def _save_snapshot(self, epoch):
        raw_model = self.model.module if hasattr(self.model, "module") else self.model
        snapshot = Snapshot(raw_model.state_dict(), self.optimizer.state_dict(), epoch)
        torch.save(asdict(snapshot), self.config.snapshot_path)
        print(f"Snapshot saved at epoch {epoch}")

    def _run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        for iteration, (source, targets) in enumerate(self.loader):
            _, loss = self.model(source, targets)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        time.sleep(self.config.pause)
        print(f"[GPU{self.global_rank}] Epoch {epoch} | Iter {iteration} | Train Loss {loss.item():.5f}")

    def train(self):
        for finished in range(self.epochs_run, self.config.max_epochs):
            epoch = finished + 1
            self._run_epoch(epoch)
            if self.local_rank == 0 and epoch % self.config.save_every == 0:
                self._save_snapshot(epoch)
