"""The part of Accelerate that an example uses: prepare, save_state, load_state, skip_first_batches."""

import os
import random

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Accelerator:
    def __init__(self):
        dist.init_process_group("gloo")
        self.process_index = dist.get_rank()
        self.is_main_process = self.process_index == 0

    def print(self, *values):
        if self.is_main_process:
            print(*values, flush=True)

    def prepare(self, model, optimizer, dataset, batch_size):
        self.model, self.optimizer = model, optimizer
        loader = DataLoader(dataset, batch_size=batch_size, sampler=DistributedSampler(dataset, seed=1))
        return DistributedDataParallel(model), optimizer, loader

    def save_state(self, output_dir):
        os.makedirs(output_dir, exist_ok=True)
        if self.is_main_process:
            save_file(self.model.state_dict(), os.path.join(output_dir, "model.safetensors"))
            torch.save(self.optimizer.state_dict(), os.path.join(output_dir, "optimizer.bin"))
        states = {"random": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}
        torch.save(states, os.path.join(output_dir, f"random_states_{self.process_index}.pkl"))
        dist.barrier()

    def load_state(self, input_dir):
        self.model.load_state_dict(load_file(os.path.join(input_dir, "model.safetensors")))
        self.optimizer.load_state_dict(torch.load(os.path.join(input_dir, "optimizer.bin")))
        path = os.path.join(input_dir, f"random_states_{self.process_index}.pkl")
        states = torch.load(path, weights_only=False)
        random.setstate(states["random"])
        np.random.set_state(states["numpy"])
        torch.set_rng_state(states["torch"])

    def end_training(self):
        dist.destroy_process_group()


def skip_first_batches(loader, count):
    """The loader without its first batches."""
    return (batch for index, batch in enumerate(loader) if index >= count)
