"""What a recipe measures and prints: loss and accuracy of an epoch, and the hash of the trained weights."""

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from rekindle.training.run import Run


@dataclass(frozen=True, slots=True)
class Score:
    """Mean ``loss``, and ``accuracy`` as a fraction of the samples."""

    loss: float
    accuracy: float

    def __str__(self) -> str:
        return f"loss {self.loss:.4f} | acc {self.accuracy:.1%}"


class EpochMetrics:
    """Loss and accuracy over an epoch; communicates with other ranks only in ``all_ranks``."""

    def __init__(self, classes: int) -> None:
        # without validation of arguments, which would wait for the GPU in every step
        self._loss = MeanMetric(nan_strategy="disable", sync_on_compute=False, compute_with_cache=False)
        self._accuracy = MulticlassAccuracy(
            classes, average="micro", validate_args=False, sync_on_compute=False, compute_with_cache=False
        )

    @property
    def torchmetrics(self) -> dict[str, MeanMetric | MulticlassAccuracy]:
        """For ``Run``, so that an interrupted epoch counts every sample once."""
        return {"loss": self._loss, "accuracy": self._accuracy}

    def update(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """``loss`` is the mean over the samples of ``labels``."""
        self._loss.update(loss.detach(), weight=len(labels))
        self._accuracy.update(logits.detach().float(), labels)

    def reset(self) -> None:
        for metric in self.torchmetrics.values():
            metric.reset()

    def this_rank(self) -> Score:
        return Score(self._loss.compute().item(), self._accuracy.compute().item())

    def all_ranks(self) -> Score:
        """Each sample has the same weight. All ranks call it."""
        for metric in self.torchmetrics.values():
            metric.sync()  # until the next compute
        return self.this_rank()


def print_line(run: Run, text: str) -> None:
    """In one write, so that lines of ranks that share a terminal do not mix."""
    sys.stdout.write(f"[rank {run.rank}] {text}\n")
    sys.stdout.flush()


def weight_hash(parameters: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over all names and bytes: equal only where every bit of two trainings is.

    Sharded parameters (DTensors) are gathered: then all ranks must call it.
    """
    sha256 = hashlib.sha256()
    for name, parameter in parameters:
        full = parameter.detach()
        if isinstance(full, DTensor):
            full = full.full_tensor()
        data = full.cpu().contiguous().flatten().view(torch.uint8)
        sha256.update(name.encode() + data.numpy().tobytes())
    return sha256.hexdigest()


def model_hash(run: Run) -> str:
    """The weight hash of the whole model. All ranks call it."""
    return weight_hash(run.module.named_parameters())
