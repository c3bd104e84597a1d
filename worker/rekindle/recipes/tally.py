"""What an epoch comes to: mean loss and accuracy of this rank, and of all ranks together."""

from dataclasses import dataclass

from torch import Tensor
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy


@dataclass(frozen=True, slots=True)
class Score:
    """``accuracy`` is a share of the samples, from 0 to 1."""

    loss: float
    accuracy: float


class Totals:
    """Counts while the rank trains, and talks to the others only in ``of_all_ranks``."""

    def __init__(self, classes: int) -> None:
        # without checks of their arguments, for which a GPU would be waited for in every step
        self._loss = MeanMetric(nan_strategy="disable", sync_on_compute=False, compute_with_cache=False)
        self._accuracy = MulticlassAccuracy(
            classes, average="micro", validate_args=False, sync_on_compute=False, compute_with_cache=False
        )

    @property
    def metrics(self) -> dict[str, MeanMetric | MulticlassAccuracy]:
        """For ``Run``, so that an interrupted epoch counts every sample once."""
        return {"loss": self._loss, "accuracy": self._accuracy}

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """``loss`` is the mean over the samples of ``labels``."""
        self._loss.update(loss.detach(), weight=len(labels))
        self._accuracy.update(logits.detach().float(), labels)

    def reset(self) -> None:
        for metric in self.metrics.values():
            metric.reset()

    def own(self) -> Score:
        """Of this rank's samples."""
        return Score(self._loss.compute().item(), self._accuracy.compute().item())

    def of_all_ranks(self) -> Score:
        """Each sample counts the same. All ranks call it."""
        for metric in self.metrics.values():
            metric.sync()  # until the next compute
        return self.own()
