"""A trainer like that of Hugging Face: checkpoint-N directories, written in place; get_last_checkpoint; a rotation."""

import json
import os
import random
import re
import shutil
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

PREFIX = re.compile(r"^checkpoint\-(\d+)$")


def get_last_checkpoint(folder):
    numbers = [int(found[1]) for name in os.listdir(folder) if (found := PREFIX.match(name))]
    return os.path.join(folder, f"checkpoint-{max(numbers)}") if numbers else None


@dataclass
class TrainingArguments:
    output_dir: str
    max_steps: int = 90
    save_steps: int = 5
    logging_steps: int = 1
    save_total_limit: int = 2
    per_device_train_batch_size: int = 16
    learning_rate: float = 5e-3
    pause: float = 0.1


class Trainer:
    def __init__(self, model, args, train_dataset):
        dist.init_process_group("gloo")
        self.model, self.args, self.dataset = model, args, train_dataset
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        self.lr_scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, total_iters=args.max_steps)
        self.state = {"global_step": 0, "epoch": 0.0, "log_history": []}

    def train(self, resume_from_checkpoint=None):
        if resume_from_checkpoint:
            self._load(resume_from_checkpoint)
        wrapped = DistributedDataParallel(self.model)
        sampler = DistributedSampler(self.dataset, seed=42)
        loader = DataLoader(self.dataset, batch_size=self.args.per_device_train_batch_size, sampler=sampler)
        epoch, skipped = divmod(self.state["global_step"], len(loader))
        if resume_from_checkpoint and not skipped:
            self._load_rng_state(resume_from_checkpoint)
        while self.state["global_step"] < self.args.max_steps:
            sampler.set_epoch(epoch)
            for index, (inputs, labels) in enumerate(loader):
                if index < skipped:
                    continue
                if index == skipped > 0:
                    self._load_rng_state(resume_from_checkpoint)
                if self.state["global_step"] >= self.args.max_steps:
                    break
                loss = torch.nn.functional.cross_entropy(wrapped(inputs), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.lr_scheduler.step()
                time.sleep(self.args.pause)
                self._after_step(epoch + (index + 1) / len(loader), loss.item())
            epoch, skipped = epoch + 1, 0
        dist.destroy_process_group()

    def _after_step(self, epoch, loss):
        self.state["global_step"] += 1
        self.state["epoch"] = epoch
        if self.state["global_step"] % self.args.logging_steps == 0 and dist.get_rank() == 0:
            rate = self.lr_scheduler.get_last_lr()[0]
            log = {"loss": round(loss, 4), "learning_rate": rate, "epoch": round(epoch, 4)}
            self.state["log_history"].append({**log, "step": self.state["global_step"]})
            print(log, flush=True)
        if self.state["global_step"] % self.args.save_steps == 0:
            self._save(os.path.join(self.args.output_dir, f"checkpoint-{self.state['global_step']}"))

    def _save(self, folder):
        os.makedirs(folder, exist_ok=True)
        if dist.get_rank() == 0:
            save_file(self.model.state_dict(), os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
            torch.save(self.optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))
            torch.save(self.lr_scheduler.state_dict(), os.path.join(folder, "scheduler.pt"))
        rng = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
        torch.save(rng, os.path.join(folder, f"rng_state_{dist.get_rank()}.pth"))
        if dist.get_rank() == 0:
            with open(os.path.join(folder, "trainer_state.json"), "w") as file:
                json.dump(self.state, file, indent=2)
            kept = sorted(int(found[1]) for name in os.listdir(self.args.output_dir) if (found := PREFIX.match(name)))
            for number in kept[: -self.args.save_total_limit]:
                shutil.rmtree(os.path.join(self.args.output_dir, f"checkpoint-{number}"))
        dist.barrier()

    def _load(self, folder):
        self.model.load_state_dict(load_file(os.path.join(folder, "model.safetensors")))
        self.optimizer.load_state_dict(torch.load(os.path.join(folder, "optimizer.pt")))
        self.lr_scheduler.load_state_dict(torch.load(os.path.join(folder, "scheduler.pt")))
        with open(os.path.join(folder, "trainer_state.json")) as file:
            self.state = json.load(file)

    def _load_rng_state(self, folder):
        """After the batches that are skipped, which draw numbers, too."""
        file = os.path.join(folder, f"rng_state_{dist.get_rank()}.pth")
        if not os.path.isfile(file):
            print(f"No RNG file was found in {folder} for this process: the results will differ", flush=True)
            return
        rng = torch.load(file, weights_only=False)
        random.setstate(rng["python"])
        np.random.set_state(rng["numpy"])
        torch.set_rng_state(rng["cpu"])
