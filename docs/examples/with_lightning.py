"""Lightning: a callback, and the path of the job's latest checkpoint."""

import argparse
import os
import time

import torch
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import digits
from rekindle.integrations.lightning import RekindleCallback, latest_checkpoint


class Classifier(LightningModule):
    def __init__(self, pause: float) -> None:
        super().__init__()
        self.model, self.pause = digits.build(), pause

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], number: int) -> Tensor:
        samples, pixels, labels = batch
        digits.trace(self.global_rank, self.global_step + 1, self.current_epoch, samples)
        loss = cross_entropy(self.model(pixels), labels)
        self.log("loss", loss)
        time.sleep(self.pause)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main(epochs: int, pause: float) -> None:
    seed_everything(0)
    trainer = Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=epochs,
        log_every_n_steps=5,
        enable_progress_bar=False,
        callbacks=[ModelCheckpoint("out", every_n_train_steps=20), RekindleCallback()],
    )
    classifier = Classifier(pause)
    loader = DataLoader(digits.Digits(), digits.BATCH, shuffle=True)
    trainer.fit(classifier, loader, ckpt_path=latest_checkpoint())
    if trainer.is_global_zero:
        print("weights", digits.digest(classifier.model))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds that a step takes longer")
    chosen = parser.parse_args()
    main(chosen.epochs, chosen.pause)
