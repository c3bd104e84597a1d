"""Accelerate: ``save_state`` and ``load_state``, and the finished batches of an epoch skipped by hand."""

import argparse
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import digits

OUT = Path("out")


class Progress:
    """What ``load_state`` has to restore besides model and optimizer."""

    steps = saved = 0

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps, "saved": self.saved}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps, self.saved = state["steps"], state["saved"]


def main(epochs: int, pause: float) -> None:
    naming = ProjectConfiguration(str(OUT), automatic_checkpoint_naming=True, total_limit=2)
    order = DataLoaderConfiguration(use_seedable_sampler=True)  # without, an interrupted epoch resumes in another order
    accelerator = Accelerator(cpu=True, project_config=naming, dataloader_config=order)
    set_seed(0)
    model = digits.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(digits.Digits(), digits.BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if any((OUT / "checkpoints").glob("*")):
        accelerator.load_state()
        naming.iteration = progress.saved
    for epoch in range(progress.steps // len(loader), epochs):
        loader.set_epoch(epoch)
        rest = accelerator.skip_first_batches(loader, progress.steps - epoch * len(loader))
        for samples, pixels, labels in rest:
            progress.steps += 1
            digits.trace(accelerator.process_index, progress.steps, epoch, samples)
            optimizer.zero_grad()
            accelerator.backward(cross_entropy(model(pixels), labels))
            optimizer.step()
            time.sleep(pause)
            if progress.steps % 20 == 0:
                progress.saved += 1
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
