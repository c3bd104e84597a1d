"""A training that stops and goes on exactly: the loop around the user's step."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset

from rekindle.contract.environment import RankEnv
from rekindle.contract.job import SnapshotPolicy
from rekindle.training import metric_state, process_group
from rekindle.training.agreement import Agreement
from rekindle.training.best import BestSoFar
from rekindle.training.data_loading import Collate, length_of, share_loader, to_device, training_loader
from rekindle.training.drain import Drained, DrainWatch
from rekindle.training.evaluating import evaluating
from rekindle.training.logbook import Logbook
from rekindle.training.memory_copy import memory_folder
from rekindle.training.method import Method, Replicas
from rekindle.training.non_finite import NonFinitePolicy, OnNan
from rekindle.training.progress import Progress
from rekindle.training.reporting import reporter
from rekindle.training.sampler import ElasticSampler
from rekindle.training.saving import Saving
from rekindle.training.schedule import SnapshotSchedule, effective_policy
from rekindle.training.snapshots import Snapshots
from rekindle.training.step_boundary import StepBoundary
from rekindle.training.training_state import PROGRESS, Stateful, TrainingState

_EPOCH_END = "epoch end"  # phase in which the script does what it likes, evaluation above all


class Run:
    """Joins the process group, restores the newest good snapshot, and takes new ones, all within ``with``.

    ``model`` is brought to this rank's device and wrapped in DistributedDataParallel (``run.model``), unless another
    ``method`` divides the work. ``optimizer``, ``scheduler``, ``scaler`` and everything in ``extra`` follow torch's
    ``state_dict`` protocol, are the same on all ranks and are saved once; ``metrics`` (torchmetrics) are saved for
    each rank.

    A step is one batch: split a batch to accumulate gradients, since those are not saved. Build the model and the
    optimizer from a fixed seed; random draws from ``with`` on depend on ``seed`` and the rank.

    ``start_from`` is a file to begin with where there is no snapshot yet: a model's state dict (``.safetensors``, or by
    ``torch.save``), or a dict of states by the names of the parts (``model``, ``optimizer`` …) by ``torch.save``.

    ``best`` names a logged metric, as in ``accuracy`` or, where less is better, ``-loss``: the best snapshot is kept
    beyond the newest ones, and the end of an epoch that is_better_than it is always saved.

    A loss (a logged metric with ``loss`` in its name) or weights that are not finite are never saved. ``on_nan`` says
    what run_after: ``stop`` raises NonFiniteError; ``rollback`` goes back to the newest snapshot and on with the data
    behind the batch that did it, three times from the same snapshot at most; ``ignore`` goes on.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: Stateful | None = None,
        scheduler: Stateful | None = None,
        scaler: Stateful | None = None,
        metrics: Any = None,
        seed: int = 0,
        device: str = "auto",
        directory: str | Path | None = None,
        snapshot_policy: SnapshotPolicy | None = None,
        method: Method | None = None,
        monitor: str | None = None,
        on_nan: OnNan = "stop",
        start_from: str | Path | None = None,
        **extra: Stateful,
    ) -> None:
        self._env = RankEnv.read(os.environ)
        self._module, self._metrics, self._seed = model, metrics, seed
        own = {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, **extra}
        self._parts = {name: part for name, part in own.items() if part is not None}
        self._directory = directory
        self._start_from = None if start_from is None else Path(start_from)
        self._method: Method = method or Replicas()
        policy = snapshot_policy or SnapshotPolicy()
        policy = replace(policy, monitor=monitor or policy.monitor)
        self._policy = effective_policy(policy, self._env.snapshot_policy)
        self._best = BestSoFar(self._policy.monitor)
        self._reporter = reporter()
        self._device_wish = self._reporter.device_kind or "auto" if device == "auto" else device
        self._drain = DrainWatch(self._env.run_dir, reads_intent=self._env.rank == 0)
        self._logbook = Logbook()
        self._progress = Progress()
        self._non_finite = NonFinitePolicy(on_nan)
        self._wrapped: nn.Module | None = None

    def __enter__(self) -> Self:
        self._world = process_group.join(self._env, self._device_wish)
        try:
            self._set_up()
        except BaseException:
            self._close()
            process_group.abandon(self._world)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        succeeded = False
        try:
            if kind is None:
                self._boundary.finish()
            succeeded = kind is None or issubclass(kind, Drained)
        finally:
            self._end(succeeded=succeeded)

    @property
    def model(self) -> nn.Module:
        """The model to train with: its backward pass averages the gradients over all ranks."""
        if self._wrapped is None:
            raise RuntimeError("run.model lives between the beginning and the end of `with Run(...) as run:`")
        return self._wrapped

    @property
    def module(self) -> nn.Module:
        """The bare model, as it was given."""
        return self._module

    @property
    def device(self) -> torch.device:
        return self._world.device

    @property
    def rank(self) -> int:
        return self._world.rank

    @property
    def world_size(self) -> int:
        return self._world.size

    @property
    def step(self) -> int:
        """Finished steps, all attempts together."""
        return self._progress.step

    @property
    def epoch(self) -> int:
        """The epoch under way, from 0."""
        return self._progress.epoch

    @property
    def batch_weight(self) -> float:
        """Multiply the mean loss of a batch by this, and each sample of the global batch weighs the same.

        It is 1 where the ranks' shares are equal, and differs where a batch cannot be divided evenly.
        """
        own, all_ranks = self._progress.share
        return own * self._method.seat(self._world)[1] / all_ranks

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of ``count``, the interrupted one first; none where the training is finished."""
        progress = self._progress
        progress.epochs = count
        if not progress.resumes_epoch:
            self._state.put_back_own()
        while not progress.finished:
            self._reporter.place(phase="train", epoch=progress.epoch, epochs=count)
            self._division.begin(progress)
            yield progress.epoch
            self._boundary.end_epoch()
        self._reporter.place(phase=_EPOCH_END, epoch=progress.epoch)

    def batches(
        self,
        dataset: Dataset[Any],
        *,
        global_batch: int,
        shuffle: bool = True,
        num_workers: int = 0,
        collate: Collate | None = None,
    ) -> Iterator[Any]:
        """This rank's part of the batches that are left of the epoch, on its device: one loop in each epoch.

        ``global_batch`` counts the samples of all ranks together; any world size trains the same batches in the same
        order. Whatever the data set draws at random is keyed to the sample. Takes snapshots when due, and raises
        ``Drained`` at a step boundary, on all ranks the same, when somebody asks to stop.
        """
        sampler = self._begin_batches(dataset, global_batch, shuffle)
        loader = training_loader(
            dataset,
            self._division.indices(sampler),
            seed=self._seed,
            epoch=sampler.epoch,
            num_workers=num_workers,
            collate=collate,
        )
        for batch in self._division.batches(loader):
            self._boundary.begin_step(sampler)
            self._division.begin(self._progress)
            yield to_device(batch, self._world.device)
            self._boundary.end_step(sampler)
        self._reporter.place(phase=_EPOCH_END)

    def parts(self, batch: Any) -> Iterator[Any]:
        """The parts of a batch, to run forward and backward one after another before the optimizer steps.

        One, the batch itself, with every method but ``DeterministicElastic``: it needs this loop, and any script may
        have it. Log the loss inside of it, and multiply it by ``batch_weight`` there.
        """
        return self._division.of(batch, self._progress)

    def share(
        self, dataset: Dataset[Any], *, batch_size: int, num_workers: int = 0, collate: Collate | None = None
    ) -> Iterator[Any]:
        """This rank's share of ``dataset`` in batches on its device, for evaluation: no sample is left out or repeated.

        Shares may differ by a sample, so ranks may see different numbers of batches: do nothing collective inside.
        """
        loader = share_loader(dataset, self._world, batch_size=batch_size, num_workers=num_workers, collate=collate)
        for batch in loader:
            yield to_device(batch, self._world.device)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside add up gradients on this rank, and send nothing; the last of a step stays outside."""
        with self._method.no_sync(self.model):
            yield

    @contextmanager
    def evaluation(self) -> Iterator[nn.Module]:
        """The bare model in evaluation mode, without gradients and with rank 0's buffers on every rank."""
        for buffer in self._module.buffers():
            dist.broadcast(buffer, src=0)
        with self.phase("evaluate"), evaluating(self._module), torch.no_grad():
            yield self._module

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tell the page that this rank does something else than training; hang detection is patient meanwhile."""
        before = self._reporter.phase
        self._reporter.place(phase=name)
        try:
            yield
        finally:
            self._reporter.place(phase=before)

    def log(self, **values: Any) -> None:
        """Note metrics of this step, such as ``loss=loss``; the page shows their mean over the ranks and samples.

        Talks to nobody and waits for no device, so it may be called at every step.
        """
        weight, _ = self._progress.share
        self._logbook.add(self._progress.step_to_log, self._progress.epoch, weight, values)

    def _set_up(self) -> None:
        self._drain.start()
        self._module.to(self._world.device)
        self._wrapped = self._method.wrap(self._module, self._world)
        self._division = self._method.parts(self._wrapped, self._world, self._seed)
        metric_state.prepare(self._metrics, self._world.device)
        model, parts = self._method.saved(self._module, self._parts)
        self._state = TrainingState(
            self._module, model, parts, self._metrics, self._seed, self._method.stream(self._world), self._world.device
        )
        agreement = Agreement(self._world)
        self._snapshots = Snapshots(
            self._directory,
            keep=self._policy.keep_last,
            world=self._world,
            memory=memory_folder(self._env),
            layout=self._state.capture_shared,
        )
        with self.phase("restore"):
            from_disk = self._restore()
        self._reporter.place(step=self._progress.step)
        self._saving = Saving(
            self._snapshots,
            SnapshotSchedule(self._policy, time.monotonic(), self._env.failures),
            self._progress,
            self._capture,
            self._state.objection,
            self._best,
            durable=self._progress.place if from_disk else None,
        )
        self._best.score = self._snapshots.best_score() if self._policy.monitor else None
        self._saving.report_policy()
        self._boundary = StepBoundary(
            self._world,
            agreement,
            self._progress,
            self._state,
            self._saving,
            self._drain,
            self._logbook,
            self._non_finite,
        )

    def _restore(self) -> bool:
        """True where the disk has all that the training goes on from."""
        restored = self._snapshots.restore()
        if restored is None:
            if self._start_from is not None:
                self._state.start_from(self._start_from)
            self._state.begin()
            return True
        same_world = restored.world_size == self._world.size
        shared = restored.shared_state
        self._state.restore(shared, restored.rank_states, step=restored.step, same_world=same_world)
        self._progress.restore(restored.step, shared[PROGRESS])
        return restored.from_disk

    def _begin_batches(self, dataset: Dataset[Any], global_batch: int, shuffle: bool) -> ElasticSampler:
        rank, sharers = self._method.seat(self._world)
        sampler = ElasticSampler(
            length_of(dataset), global_batch, seed=self._seed, rank=rank, world_size=sharers, shuffle=shuffle
        )
        resumes = self._progress.resumes_epoch
        self._reporter.place(steps=self._progress.begin_batches(sampler))
        if resumes:
            self._state.put_back_own()
        return sampler

    def _capture(self) -> tuple[dict[str, Any], dict[str, Any]]:
        gathers = self._world.rank == 0 or self._method.divides_state
        return self._capture_shared() if gathers else {}, self._state.capture_own()

    def _capture_shared(self) -> dict[str, Any]:
        return {**self._state.capture_shared(), PROGRESS: self._progress.state_dict()}

    def _end(self, *, succeeded: bool) -> None:
        """Leave the other ranks; a snapshot under way is waited for."""
        if succeeded:
            self._saving.forget_copies()
        else:
            self._saving.abandon()
        self._close()
        if succeeded:
            process_group.leave(self._world)
        else:
            process_group.abandon(self._world)

    def _close(self) -> None:
        """Drop what must not outlive the process group."""
        self._drain.stop()
        self._reporter.flush()
        self._wrapped = None
