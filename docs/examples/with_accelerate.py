"""Accelerate: ``save_state``, and a data loader that resumes."""

import argparse
import time

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import digits
from rekindle.integrations.accelerate import ResumableLoader


def main(epochs: int, pause: float) -> None:
    naming = ProjectConfiguration("out", automatic_checkpoint_naming=True, total_limit=2)
    order = DataLoaderConfiguration(use_seedable_sampler=True)  # without, an interrupted epoch resumes in another order
    accelerator = Accelerator(cpu=True, project_config=naming, dataloader_config=order)
    set_seed(0)
    model = digits.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(digits.Digits(), digits.BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loader = ResumableLoader(accelerator, loader)
    for epoch in loader.epochs(epochs):
        for samples, pixels, labels in loader:
            digits.trace(accelerator.process_index, loader.step, epoch, samples)
            optimizer.zero_grad()
            loss = cross_entropy(model(pixels), labels)
            accelerator.backward(loss)
            optimizer.step()
            time.sleep(pause)
            if loader.step % 5 == 0:
                accelerator.log({"loss": loss.item()}, loader.step)
            if loader.step % 20 == 0:
                accelerator.save_state()
    if accelerator.is_main_process:
        print("weights", digits.digest(model))
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds that a step takes longer")
    chosen = parser.parse_args()
    main(chosen.epochs, chosen.pause)
