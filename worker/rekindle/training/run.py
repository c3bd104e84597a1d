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

from rekindle.contract.environ import RankEnv
from rekindle.contract.spec import Cadence
from rekindle.training import metric_state, process_group
from rekindle.training.agreement import Agreement, Decision
from rekindle.training.data_loading import Collate, length_of, share_loader, to_device, training_loader
from rekindle.training.drain import Drained, DrainWatch
from rekindle.training.logbook import Logbook
from rekindle.training.memory_copy import memory_folder
from rekindle.training.method import Method, Replicas
from rekindle.training.non_finite import NonFinitePolicy, OnNan, first_non_finite_loss
from rekindle.training.reporting import reporter
from rekindle.training.sampler import ElasticSampler
from rekindle.training.saving import Place, Saving
from rekindle.training.schedule import SnapshotSchedule, chosen_cadence
from rekindle.training.snapshots import Restored, Snapshots
from rekindle.training.training_state import Stateful, TrainingState


class Run:
    """Joins the process group, restores the newest good snapshot, and takes new ones, all within ``with``.

    ``model`` is brought to this rank's device and wrapped in DistributedDataParallel (``run.model``), unless another
    ``method`` divides the work. ``optimizer``, ``scheduler``, ``scaler`` and everything in ``extra`` follow torch's
    ``state_dict`` protocol, are the same on all ranks and are saved once; ``metrics`` (torchmetrics) are saved for
    each rank.

    A step is one batch: split a batch to accumulate gradients, since those are not saved. Build the model and the
    optimizer from a fixed seed; random draws from ``with`` on depend on ``seed`` and the rank.

    ``start_from`` is a file by ``torch.save`` to begin with where there is no snapshot yet: a model's state dict, or a
    dict of states by the names of the parts (``model``, ``optimizer`` …).

    A loss (a logged metric with ``loss`` in its name) or weights that are not finite are never saved. ``on_nan`` says
    what follows: ``stop`` raises NonFiniteError; ``rollback`` goes back to the newest snapshot and on with the data
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
        cadence: Cadence | None = None,
        method: Method | None = None,
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
        self._cadence, self._adapts = chosen_cadence(cadence or Cadence(), self._env.cadence)
        self._reporter = reporter()
        self._device_wish = self._reporter.device_kind or "auto" if device == "auto" else device
        self._drain = DrainWatch(self._env.run_dir, reads_intent=self._env.rank == 0)
        self._logbook = Logbook()
        self._step = self._epoch = 0  # finished steps; the epoch under way, or the next one
        self._epochs = 0  # how many there are to be
        self._sampler: ElasticSampler | None = None  # of the epoch under way
        self._interrupted: dict[str, Any] | None = None  # the sampler's state where an epoch is to go on
        self._share = (1, 1)  # samples of the batch under way: this rank's, all ranks'
        self._in_step = False
        self._later = Decision()  # decided, to be done at the end of the epoch
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
                self._finish()
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
        return self._step

    @property
    def epoch(self) -> int:
        """The epoch under way, from 0."""
        return self._epoch

    @property
    def batch_weight(self) -> float:
        """Multiply the mean loss of a batch by this, and each sample of the global batch weighs the same.

        It is 1 where the ranks' shares are equal, and differs where a batch cannot be divided evenly.
        """
        own, all_ranks = self._share
        return own * self._method.seat(self._world)[1] / all_ranks

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of ``count``, the interrupted one first; none where the training is finished."""
        self._epochs = count
        if self._interrupted is None:
            self._state.put_back_own()
        while self._epoch < count:
            self._reporter.place(phase="train", epoch=self._epoch, epochs=count)
            yield self._epoch
            self._end_epoch()
        self._reporter.place(epoch=self._epoch)

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
        loader = training_loader(dataset, sampler, seed=self._seed, num_workers=num_workers, collate=collate)
        for batch in loader:
            self._begin_step(sampler)
            yield to_device(batch, self._world.device)
            self._end_step(sampler)

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
        was_training = self._module.training
        self._module.eval()
        with self.phase("evaluate"), torch.no_grad():
            yield self._module
        self._module.train(was_training)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tell the page that this rank does something else than training; hang detection is patient meanwhile."""
        self._reporter.place(phase=name)
        yield
        self._reporter.place(phase="train")

    def log(self, **values: Any) -> None:
        """Note metrics of this step, such as ``loss=loss``; the page shows their mean over the ranks and samples.

        Talks to nobody and waits for no device, so it may be called at every step.
        """
        weight, _ = self._share
        self._logbook.add(self._step + self._in_step, self._epoch, weight, values)

    def _set_up(self) -> None:
        self._drain.start()
        self._module.to(self._world.device)
        self._wrapped = self._method.wrap(self._module, self._world)
        metric_state.prepare(self._metrics, self._world.device)
        model, parts = self._method.saved(self._module, self._parts)
        self._state = TrainingState(
            self._module, model, parts, self._metrics, self._seed, self._world.rank, self._world.device
        )
        self._agreement = Agreement(self._world)
        self._snapshots = Snapshots(
            self._directory, keep=self._cadence.keep, world=self._world, memory=memory_folder(self._env)
        )
        with self.phase("restore"):
            from_disk = self._restore()
        self._schedule = SnapshotSchedule(self._cadence, self._adapts, last_at=time.monotonic())
        self._saving = Saving(
            self._snapshots,
            self._schedule,
            self._place,
            self._capture,
            self._state.objection,
            durable=self._place() if from_disk else None,
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
        self._step, self._epoch = restored.step, shared["progress"]["epoch"]
        self._interrupted = shared["progress"]["sampler"]
        return restored.from_disk

    def _begin_batches(self, dataset: Dataset[Any], global_batch: int, shuffle: bool) -> ElasticSampler:
        if self._sampler is not None or self._epoch >= self._epochs:
            raise RuntimeError(
                "run.batches is called once in each epoch of `for epoch in run.epochs(n)`; for a second loop over "
                "other data use a DataLoader with an ElasticSampler of its own"
            )
        rank, sharers = self._method.seat(self._world)
        sampler = ElasticSampler(
            length_of(dataset), global_batch, seed=self._seed, rank=rank, world_size=sharers, shuffle=shuffle
        )
        sampler.set_epoch(self._epoch)
        steps_per_epoch = len(sampler)
        if self._interrupted is not None:
            sampler.load_state_dict(self._interrupted)
            self._interrupted = None
            self._state.put_back_own()
        self._sampler = sampler
        epochs_to_come = self._epochs - self._epoch - 1
        self._reporter.place(steps=self._step + len(sampler) + epochs_to_come * steps_per_epoch)
        return sampler

    def _begin_step(self, sampler: ElasticSampler) -> None:
        self._share, self._in_step = sampler.next_sizes(), True
        now, leads = time.monotonic(), self._world.rank == 0
        self._agreement.begin(
            Decision(
                drain=self._drain.requested(),
                snapshot=leads and self._schedule.due_after_step(self._step + 1, now),
                copy=leads and self._saving.copy_due(now),
                flush=leads and self._logbook.due(now),
                writing=self._saving.writing,
            )
        )

    def _count_step(self, sampler: ElasticSampler) -> None:
        sampler.advance()
        self._step += 1
        self._in_step, self._share = False, (1, 1)
        self._reporter.place(step=self._step)

    def _end_step(self, sampler: ElasticSampler) -> None:
        """A snapshot due at the end of the epoch waits for what the script does there, such as a scheduler's step."""
        self._count_step(sampler)
        decision = self._agreement.settle()
        if sampler.finished and not decision.drain:
            self._later = decision
        else:
            self._act(decision)

    def _end_epoch(self) -> None:
        decision = self._later | self._agreement.settle()
        if self._in_step and self._sampler is not None:  # the script left the loop over the batches by `break`
            self._count_step(self._sampler)
        finished = self._epoch
        self._epoch, self._sampler, self._later = finished + 1, None, Decision()
        is_last = self._epoch >= self._epochs
        due = self._world.rank == 0 and self._schedule.due_after_epoch(finished, time.monotonic())
        vote = Decision(self._drain.requested(), due or is_last, flush=True, writing=self._saving.writing)
        answer = self._agreement.ask(vote)
        decision = replace(decision | answer, writing=answer.writing)
        if decision.snapshot and not self._adapts:  # asked for at this very place: it is not left out
            self._collect()
            decision = replace(decision, writing=False)
        self._act(replace(decision, drain=False) if is_last else decision, must_save=is_last)

    def _act(self, decision: Decision, *, must_save: bool = False) -> None:
        """Do what all ranks have agreed on."""
        if decision.flush or decision.snapshot or decision.copy or decision.drain:
            self._write_log()
        if decision.drain or must_save:
            self._save_now()
        elif not decision.writing:
            self._collect()
            if decision.snapshot:
                self._saving.begin()
            elif decision.copy:
                self._saving.begin_copy()
        elif decision.snapshot:
            self._saving.put_off()
        if decision.drain:
            raise Drained(self._step)

    def _save_now(self) -> None:
        self._collect()
        self._saving.begin()
        self._collect()

    def _collect(self) -> None:
        result = self._saving.collect()
        if result is not None and result.objected:
            self._object(f"{result.problem} after step {result.step}")

    def _object(self, finding: str) -> None:
        """Loss or weights are not finite, as all ranks find at the same step boundary."""
        if not self._non_finite.calls_for_rollback(finding):
            return
        self._saving.collect()
        restored = self._snapshots.newest()
        self._non_finite.may_go_back_to(None if restored is None else restored.step, finding)
        if restored is not None:
            self._roll_back(restored, finding)

    def _roll_back(self, restored: Restored, finding: str) -> None:
        """The state of ``restored``, and the data that come next: those between are left out."""
        shared = restored.shared_state
        self._state.roll_back(
            shared,
            restored.rank_states,
            step=restored.step,
            same_world=restored.world_size == self._world.size,
            same_epoch=shared["progress"]["epoch"] == self._epoch,
        )
        left_out, self._step = self._step - restored.step, restored.step
        self._reporter.place(step=self._step)
        if self._world.rank == 0:
            place = f"back to the snapshot of step {restored.step}"
            self._reporter.warn(f"{finding}: {place}, without the data of the last {left_out} steps")

    def _capture(self) -> tuple[dict[str, Any], dict[str, Any]]:
        gathers = self._world.rank == 0 or self._method.divides_state
        return self._capture_shared() if gathers else {}, self._state.capture_own()

    def _capture_shared(self) -> dict[str, Any]:
        sampler = self._interrupted if self._sampler is None else self._sampler.state_dict()
        return {**self._state.capture_shared(), "progress": {"epoch": self._epoch, "sampler": sampler}}

    def _place(self) -> Place:
        return self._step, self._epoch, self._sampler is not None or self._interrupted is not None

    def _write_log(self) -> None:
        points = self._logbook.average(self._world)
        for point in points:
            self._reporter.measure(point)
        self._reporter.flush()
        finding = first_non_finite_loss(points)
        if finding is not None:
            self._object(finding)

    def _finish(self) -> None:
        """Save what the script has trained since the last snapshot, if it ended before its epochs did."""
        self._agreement.settle()
        if self._in_step and self._sampler is not None:
            self._count_step(self._sampler)
        self._write_log()
        self._save_now()

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
