"""A training that stops and resumes exactly: the loop around the user's step."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset, Subset

from rekindle.contract.environment import RankEnv
from rekindle.contract.job_options import SnapshotPolicy
from rekindle.training import process_group
from rekindle.training.data_loading import Collate, KeyedDataset, data_loader, length_of, to_device
from rekindle.training.drain import Drained, DrainSignal, LastStep
from rekindle.training.layer_recorder import LayerRecorder
from rekindle.training.replay_hook import ReplayHook
from rekindle.training.reporter import reporter
from rekindle.training.sampler import ElasticSampler, TrainingProgress, shard_range
from rekindle.training.snapshots.async_saver import AsyncSaver, BestTracker
from rekindle.training.snapshots.replicas import WeightSample, sample_weights
from rekindle.training.snapshots.shared_memory import shm_dir
from rekindle.training.snapshots.snapshot_schedule import SnapshotSchedule, effective_policy
from rekindle.training.snapshots.training_snapshots import Snapshots
from rekindle.training.step_boundary import (
    SPIKE_DEVIATIONS,
    FlagAllReduce,
    LossSpikes,
    MetricBuffer,
    NonFinitePolicy,
    OnNan,
    StepBoundary,
)
from rekindle.training.step_digests import INTERVAL, DigestRecorder, OnDivergence
from rekindle.training.strategy import DDPStrategy, Strategy
from rekindle.training.training_state import Stateful, TrainingState, prepare_metrics

_EPOCH_END = "epoch end"  # phase in which the script may do anything, evaluation above all


class Run:
    """Joins the process group, restores the latest good snapshot, and takes new ones, all within ``with``.

    ``model`` is moved to this rank's device and wrapped in DistributedDataParallel (``run.model``), unless another
    ``strategy`` divides the work. ``optimizer``, ``scheduler``, ``scaler`` and everything in ``extra`` follow torch's
    ``state_dict`` protocol, are the same on all ranks and are saved once; ``metrics`` (torchmetrics) are saved for
    each rank.

    A step is one batch: split a batch to accumulate gradients, since those are not saved. Build the model and the
    optimizer from a fixed seed; random draws from ``with`` on depend on ``seed`` and the rank.

    ``start_from`` is a file to start from where there is no snapshot yet: a model's state dict (``.safetensors``, or by
    ``torch.save``), or a dict of states by the names of the parts (``model``, ``optimizer`` …) by ``torch.save``.

    ``monitor`` names a logged metric, as in ``accuracy`` or, where less is better, ``-loss``: the best snapshot is kept
    in addition to the latest ones, and the end of an epoch that is better than it is always saved.

    A loss (a logged metric with ``loss`` in its name) or weights that are not finite are never saved. ``on_nan`` is
    what follows: ``stop`` raises NonFiniteError; ``rollback`` restores the latest snapshot and continues with the data
    after the batch that caused it, at most three times from the same snapshot; ``ignore`` continues.

    ``loss_spike``: a loss that many deviations above the median of its last 100 values is reported; by default 10 for a
    job with ``--check-device``, and never for others.

    Every ``digests`` steps (0: never) each rank records digests of its batch, gradients, weights and so on, and the
    ranks compare those that should be the same. ``on_divergence`` is what follows where they are not: ``continue`` with
    a notice; ``rollback``, a new attempt from the latest snapshot; ``stop`` raises DivergenceError.
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
        strategy: Strategy | None = None,
        monitor: str | None = None,
        on_nan: OnNan = "stop",
        loss_spike: float | None = None,
        digests: int = INTERVAL,
        on_divergence: OnDivergence = "continue",
        start_from: str | Path | None = None,
        **extra: Stateful,
    ) -> None:
        self._env = RankEnv.read(os.environ)
        self._module, self._metrics, self._seed = model, metrics, seed
        own = {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, **extra}
        self._parts = {name: part for name, part in own.items() if part is not None}
        self._directory = directory
        self._start_from = None if start_from is None else Path(start_from)
        self._strategy = strategy or DDPStrategy()
        self._policy = effective_policy(snapshot_policy or SnapshotPolicy(), self._env.snapshot_policy, monitor)
        self._best = BestTracker(self._policy.monitor)
        self._reporter = reporter()
        self._requested_device = self._reporter.device_kind or "auto" if device == "auto" else device
        self._drain = DrainSignal(self._env.run_dir, reads_intent=self._env.rank == 0)
        self._logged = MetricBuffer()
        self._progress = TrainingProgress()
        spec = self._env.spec
        self._last_step, self._record_step = (None, None) if spec is None else (spec.last_step, spec.record_step)
        self._digest_interval = digests if spec is None or spec.digest is None else spec.digest
        self._on_divergence = on_divergence
        self._non_finite = NonFinitePolicy(on_nan, goes_back=self._record_step is None)
        default = SPIKE_DEVIATIONS if spec is not None and spec.check_device else None
        self._spikes = LossSpikes(default if loss_spike is None else loss_spike)
        self._wrapped: nn.Module | None = None

    def __enter__(self) -> Self:
        self._world = process_group.join(self._env, self._requested_device)
        try:
            self._set_up()
        except BaseException:
            self._leave(succeeded=False)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        succeeded, drained = False, kind is not None and issubclass(kind, Drained)
        complete = kind is None or issubclass(kind, LastStep)
        try:
            if complete:
                self._boundary.finish()
                self._reporter.update_status(completed=kind is not None or self._progress.finished)
            succeeded = complete or drained
        finally:
            self._saver.finish(succeeded=succeeded)
            self._leave(succeeded=succeeded, drained=drained)

    @property
    def model(self) -> nn.Module:
        """The model to train with: its backward pass averages the gradients over all ranks."""
        if self._wrapped is None:
            raise RuntimeError("run.model exists only within `with Run(...) as run:`")
        return self._wrapped

    @property
    def module(self) -> nn.Module:
        """The bare model, as it was given."""
        return self._module

    @property
    def device(self) -> torch.device:
        """The device of this rank, on which ``run.model`` is."""
        return self._world.device

    @property
    def rank(self) -> int:
        """The number of this rank among all, from 0."""
        return self._world.rank

    @property
    def world_size(self) -> int:
        """The number of ranks of this attempt."""
        return self._world.size

    @property
    def step(self) -> int:
        """Finished steps of all attempts together, replayed ones once."""
        return self._progress.step

    @property
    def epoch(self) -> int:
        """The current epoch, from 0."""
        return self._progress.epoch

    @property
    def batch_weight(self) -> float:
        """Multiply the mean loss of a batch by this, and each sample of the global batch weighs the same.

        It is 1 where the ranks' shards are equal, and differs where a batch cannot be divided evenly.
        """
        own, all_ranks = self._progress.samples
        return own * self._strategy.data_shard(self._world)[1] / all_ranks

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of ``count``, the interrupted one first; none where the training is finished."""
        progress = self._progress
        progress.epochs = count
        if not progress.resumes_epoch:
            self._state.restore_rank_state()
        while not progress.finished:
            self._reporter.update_status(phase="train", epoch=progress.epoch, epochs=count)
            self._microbatches.begin(progress)
            yield progress.epoch
            self._boundary.end_epoch()
        self._reporter.update_status(phase=_EPOCH_END, epoch=progress.epoch)

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
        ``Drained`` at a step boundary, on all ranks the same, when a stop is requested.
        """
        sampler = self._begin_batches(dataset, global_batch, shuffle)
        keyed, indices = KeyedDataset(dataset, self._seed, sampler.epoch), self._microbatches.indices(sampler)
        loader = data_loader(keyed, num_workers, collate, batch_sampler=indices)
        for batch in self._microbatches.batches(loader):
            self._boundary.begin_step(sampler)
            self._microbatches.begin(self._progress)
            moved = to_device(batch, self._world.device)
            self._digests.note_batch(moved)
            self._recorder.note_batch(moved)
            self._hook.before(moved)
            yield moved
            self._hook.after()
            self._boundary.end_step(sampler)
        self._reporter.update_status(phase=_EPOCH_END)

    def microbatches(self, batch: Any) -> Iterator[Any]:
        """The micro-batches of a batch, to run forward and backward in turn before the optimizer steps.

        One, the batch itself, with every strategy but ``DeterministicElastic``, which needs this loop. Log the loss
        within it, and multiply it by ``batch_weight`` there.
        """
        return self._microbatches.of(batch, self._progress)

    def eval_batches(
        self, dataset: Dataset[Any], *, batch_size: int, num_workers: int = 0, collate: Collate | None = None
    ) -> Iterator[Any]:
        """This rank's shard of ``dataset`` in batches on its device, for evaluation: each sample is on one rank.

        Shards may differ by a sample, so ranks may get different numbers of batches: do nothing collective within.
        """
        own = shard_range(length_of(dataset), self.rank, self.world_size)
        keyed = KeyedDataset(Subset(dataset, cast("Sequence[int]", own)), seed=0, epoch=0)
        for batch in data_loader(keyed, num_workers, collate, batch_size=batch_size):
            yield to_device(batch, self._world.device)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients of backward passes on this rank, and send nothing; the last of a step is outside."""
        with self._strategy.no_sync(self.model):
            yield

    @contextmanager
    def evaluation(self) -> Iterator[nn.Module]:
        """The bare model in evaluation mode, without gradients and with rank 0's buffers on every rank."""
        for buffer in self._module.buffers():
            dist.broadcast(buffer, src=0)
        with self.phase("evaluate"), eval_mode(self._module), torch.no_grad():
            yield self._module

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show on the page that this rank does something else than training; hang detection waits longer meanwhile."""
        before = self._reporter.phase
        self._reporter.update_status(phase=name)
        try:
            yield
        finally:
            self._reporter.update_status(phase=before)

    def log(self, **values: Any) -> None:
        """Log metrics of this step, such as ``loss=loss``; the page shows their mean over the ranks and samples.

        Neither communicates nor waits for a device, so it may be called at every step.
        """
        samples, _ = self._progress.samples
        self._logged.add(self._progress.step + self._progress.in_step, self._progress.epoch, samples, values)

    def _set_up(self) -> None:
        self._drain.start()
        self._reporter.update_status(completed=False)  # there may have been another run in this process
        self._module.to(self._world.device)
        self._wrapped = self._strategy.wrap(self._module, self._world)
        self._microbatches = self._strategy.microbatches(self._wrapped, self._world, self._seed)
        prepare_metrics(self._metrics, self._world.device)
        model, parts = self._strategy.stateful_parts(self._module, self._parts)
        stream = self._strategy.rng_stream(self._world)
        self._state = TrainingState(
            self._module, model, parts, self._metrics, self._progress, self._seed, stream, self._world.device
        )
        flags = FlagAllReduce(self._world)
        self._saver = self._build_saver()
        rank_dir = self._env.rank_dir
        self._recorder = LayerRecorder(self._module, self._record_step, None if rank_dir is None else rank_dir.layers)
        self._hook = ReplayHook(self, self._env, self._parts)
        self._digests = DigestRecorder(
            self._world, self._module, self._parts, self._progress, self._digest_interval,
            replicated=not self._strategy.is_sharded,
            path=None if rank_dir is None else rank_dir.digests,
            logged=self._logged.of_step,
            on_divergence=self._on_divergence,
        )  # fmt: skip
        self._boundary = StepBoundary(
            self._world, flags, self._progress, self._state, self._saver, self._drain, self._logged, self._non_finite,
            self._spikes, self._digests, self._recorder, self._last_step,
            must_store_result=self._env.run_dir is not None,
        )  # fmt: skip

    def _build_saver(self) -> AsyncSaver:
        """Restore the training, then make what saves it: the schedule starts after the restore."""
        snapshots = Snapshots(
            self._directory,
            keep_last=self._policy.keep_last,
            world=self._world,
            shm=shm_dir(self._env),
            layout=self._state.capture_shared,
        )
        with self.phase("restore"):
            on_disk = self._state.restore_or_begin(snapshots.restore(), self._world.size, self._start_from)
        self._reporter.update_status(step=self._progress.step)
        self._best.best = snapshots.best_score() if self._policy.monitor else None
        saver = AsyncSaver(
            snapshots,
            SnapshotSchedule(self._policy, time.monotonic(), self._env.failures),
            self._progress,
            partial(self._state.capture, shared=self._world.rank == 0 or self._strategy.is_sharded),
            self._sample_weights,
            self._state.find_non_finite,
            self._best,
            saved=self._progress.position if on_disk else None,
        )
        saver.report_policy()
        return saver

    def _sample_weights(self) -> WeightSample | None:
        """Sample the weights that every rank should have alike; None where no two ranks should."""
        is_replica = self._world.size > 1 and not self._strategy.is_sharded
        return sample_weights(self._module) if is_replica else None

    def _begin_batches(self, dataset: Dataset[Any], global_batch: int, shuffle: bool) -> ElasticSampler:
        shard, shards = self._strategy.data_shard(self._world)
        sampler = ElasticSampler(
            length_of(dataset), global_batch, seed=self._seed, rank=shard, world_size=shards, shuffle=shuffle
        )
        resumes = self._progress.resumes_epoch
        self._reporter.update_status(steps=self._progress.begin_batches(sampler))
        if resumes:
            self._state.restore_rank_state()
        return sampler

    def _leave(self, *, succeeded: bool, drained: bool = False) -> None:
        """Drop what must not outlive the process group, and leave the other ranks."""
        self._drain.stop(drained=drained)
        self._reporter.flush()
        self._wrapped = None
        if succeeded:
            process_group.leave(self._world)
        else:
            process_group.abort(self._world)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put all of ``model`` into evaluation mode; afterwards each layer is as it was: frozen ones stay frozen."""
    modes = {layer: layer.training for layer in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
