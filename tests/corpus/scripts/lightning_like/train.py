"""The shape of a Lightning script: a module, a Trainer with a checkpoint callback, fit(ckpt_path="last")."""

import argparse

import torch
from torch import nn
from torch.utils.data import TensorDataset
from trainer import ModelCheckpoint, Trainer


class LitRegressor(nn.Module):
    batch_size = 32

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x)

    def training_step(self, model, batch):
        x, y = batch
        return nn.functional.mse_loss(model(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_epochs", type=int, default=15)
    parser.add_argument("--ckpt_dir", help="where checkpoints are saved (default: as the logger says)")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds that a batch takes longer")
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    trainer = Trainer(args.max_epochs, ModelCheckpoint(args.ckpt_dir, every_n_train_steps=4), pause=args.pause)
    trainer.fit(LitRegressor(), TensorDataset(x, x.sum(1, keepdim=True)), ckpt_path="last")
