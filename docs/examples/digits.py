"""Data, model and trace of the examples in this directory, which all train the same."""

import hashlib
import json
from collections.abc import Iterable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset

IMAGES, BATCH = 800, 16  # BATCH on each rank: with two ranks 25 steps an epoch


class Digits(Dataset):
    """Handwritten digits of 8 by 8 pixels, each with its number."""

    def __init__(self) -> None:
        pixels, labels = load_digits(return_X_y=True)
        self.pixels = torch.tensor(pixels[:IMAGES], dtype=torch.float32) / 16
        self.labels = torch.tensor(labels[:IMAGES])

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[int, Tensor, Tensor]:
        return index, self.pixels[index], self.labels[index]


def build() -> nn.Module:
    """With dropout, which draws random numbers at every step."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))


def trace(rank: int, step: int, epoch: int, samples: Iterable[int]) -> None:
    """Log which samples a step trains: for the table in docs/evidence.md, a training needs none of it."""
    with open(f"trace-{rank}.jsonl", "a") as file:
        file.write(json.dumps([step, epoch, sorted(int(sample) for sample in samples)]) + "\n")


def digest(model: nn.Module) -> str:
    """Equal for two models only if every bit of their weights is."""
    weights = hashlib.sha256()
    for parameter in model.parameters():
        weights.update(parameter.detach().numpy().tobytes())
    return weights.hexdigest()
