"""Accelerate: ``loader = ResumableLoader(accelerator, loader)`` after ``prepare``."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

from rekindle.integrations.framework_steps import FrameworkSteps, latest_own_checkpoint
from rekindle.training.reporter import report


class ResumableLoader(GeneralTracker):
    """Iterates over a prepared data loader, from where the job's latest ``save_state`` was called.

    Make it after ``prepare`` and ``register_for_checkpointing``: it loads that state. Call ``save_state`` after
    ``optimizer.step()``. When drained, all ranks save and stop after the same step. What ``accelerator.log`` gets
    becomes metrics of the job. Outside rekindle it only iterates.
    """

    name, requires_logging_directory, tracker = "rekindle", False, None

    def __init__(self, accelerator: Accelerator, loader: Any) -> None:
        super().__init__(_blank=True)
        self._accelerator, self._loader, self._steps = accelerator, loader, FrameworkSteps()
        self.epoch = self.step = 0  # step: batches of all epochs
        self._batch = 0  # those of the epoch
        self._totals: dict[str, int] = {}
        accelerator.register_for_checkpointing(self)
        latest = latest_own_checkpoint(lambda path: any(path.glob("custom_checkpoint_*.pkl")))
        if latest is not None:
            accelerator.load_state(latest)
        if self._steps.join(self.step):
            accelerator.trackers.append(self)
            naming = accelerator.project_configuration
            if naming.automatic_checkpoint_naming:  # Accelerate refuses to overwrite
                taken = Path(accelerator.project_dir, "checkpoints").glob("checkpoint_*")
                naming.iteration = max((int(re.findall(r"\d+", each.name)[0]) for each in taken), default=-1) + 1

    def __len__(self) -> int:
        return len(self._loader)

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of ``count``, the interrupted one first."""
        self._totals = {"epochs": count, "steps": count * len(self)}
        while (epoch := self.epoch) < count:
            yield epoch
            if self.epoch == epoch:  # the script has left the loop over the batches by ``break``
                self.epoch, self._batch = epoch + 1, 0
        self._steps.finish()

    def __iter__(self) -> Iterator[Any]:
        self._loader.set_epoch(self.epoch)
        for batch in self._accelerator.skip_first_batches(self._loader, self._batch):
            self._steps.begin()
            self._batch, self.step = self._batch + 1, self.step + 1
            yield batch
            drains = self._steps.end(self.step, pauses=False, epoch=self.epoch, **self._totals)
            if drains and self._accelerator.sync_gradients:  # else they are being accumulated, and no state has them
                self._accelerator.save_state(str(self._steps.drain_path(self.step)))
                self._steps.leave(self.step)
        self.epoch, self._batch = self.epoch + 1, 0
        report(phase="epoch end")

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self._steps.log(self.step if step is None else step, values)

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "batch": self._batch, "step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self._batch, self.step = state["epoch"], state["batch"], state["step"]
