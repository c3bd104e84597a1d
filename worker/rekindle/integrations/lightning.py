"""Lightning: ``Trainer(callbacks=[RekindleCallback()])`` and ``trainer.fit(…, ckpt_path=latest_checkpoint())``."""

import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger

from rekindle.integrations.framework_steps import FrameworkSteps, latest_own_checkpoint
from rekindle.training.reporter import report


def latest_checkpoint() -> str | None:
    """Path of the job's latest checkpoint that Lightning can resume from; None outside rekindle."""
    return latest_own_checkpoint(_can_resume)


def _can_resume(path: Path) -> bool:
    """True for a checkpoint with optimizers, or the directory of a sharded strategy."""
    if path.suffix != ".ckpt" or path.is_dir():
        return path.suffix == ".ckpt"
    with suppress(OSError, BadZipFile), ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        return any(b"optimizer_states" in archive.read(name) for name in names)
    return False


class RekindleCallback(Callback, Logger):
    """Reports steps and metrics, saves and stops at a step when drained, and resumes an epoch at its next batch.

    Does nothing outside rekindle.
    """

    name, version = "rekindle", 0  # as a logger

    def __init__(self) -> None:
        super().__init__()
        self._steps = FrameworkSteps()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if self._steps.join(trainer.global_step):
            trainer.loggers.append(self)  # only now: ModelCheckpoint has derived its directory from the others
            _skip_trained_batches(trainer)
        self._step = trainer.global_step
        self._totals = {"steps": trainer.estimated_stepping_batches, "epochs": trainer.max_epochs or -1}

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._steps.begin()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self._step:  # the gradients were only accumulated
            return
        self._step, is_last = trainer.global_step, trainer.is_last_batch
        totals = {name: int(value) for name, value in self._totals.items() if 0 < value < float("inf")}
        if self._steps.end(self._step, pauses=is_last, epoch=trainer.current_epoch, **totals):
            trainer.save_checkpoint(self._steps.drain_path(self._step, ".ckpt"))
            if not is_last:  # else what belongs to the end of the epoch comes first
                trainer._signal_connector._original_handlers.pop(signal.SIGTERM, None)  # ours stays until the end
                self._steps.leave(self._step)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        report(phase="evaluate")

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        trainer.loggers = [each for each in trainer.loggers if each is not self]
        self._steps.finish()

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._steps.log((step or 0) + 1, metrics)  # Lightning counts the step in progress from 0

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


def _skip_trained_batches(trainer: Trainer) -> None:
    """Begin an interrupted epoch at its next batch: Lightning restores the number of the batch, not its samples.

    Not where the data loaders have a state, which Lightning restores.
    """
    loop = trainer.fit_loop
    trained, loaders = loop.epoch_loop.batch_progress.current.processed, loop._combined_loader.flattened
    is_exact = all(hasattr(each, "load_state_dict") for each in loaders)
    if is_exact or not loop.restarting or not 0 < trained < trainer.num_training_batches:
        return
    for loader in loaders:
        sampler: Any = getattr(loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(trainer.current_epoch)
    fetcher = iter(loop._data_fetcher)  # again: workers have fetched the first epoch's batches
    for _ in range(trained):
        next(fetcher)
    fetcher.fetched = 0  # the loop adds them
