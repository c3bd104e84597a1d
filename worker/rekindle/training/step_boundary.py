"""What all ranks do between two steps, in agreement: save, gather what was logged, roll back, stop."""

import time
from dataclasses import astuple, dataclass, field, replace

import torch
import torch.distributed as dist

from rekindle.training.data.progress import Progress
from rekindle.training.data.sampler import ElasticSampler
from rekindle.training.drain import Drained, DrainSignal
from rekindle.training.non_finite import NonFinitePolicy, first_non_finite_loss
from rekindle.training.process_group import World
from rekindle.training.reporting.metric_buffer import MetricBuffer
from rekindle.training.reporting.reporter import reporter
from rekindle.training.snapshots.engine.loader import Restored
from rekindle.training.snapshots.engine.writer import SaveResult
from rekindle.training.snapshots.policy.async_saver import AsyncSaver
from rekindle.training.training_state import TrainingState

RESULT_TIMEOUT = 600.0  # seconds to wait for space for the last snapshot
_FIRST_PAUSE, _MAX_PAUSE = 1.0, 10.0  # seconds between two tries


class ResultNotStoredError(RuntimeError):
    """The training has reached its end, and its last snapshot could not be written; raised on every rank."""


@dataclass(frozen=True, slots=True)
class StepFlags:
    """What is to follow a step. Of one rank: what it requests; one request is enough."""

    drain: bool = False
    snapshot: bool = False
    shm: bool = False  # a snapshot in shared memory
    flush: bool = False  # gather what was logged
    writing: bool = False  # no request: the snapshot before is still being written

    def __or__(self, other: "StepFlags") -> "StepFlags":
        return StepFlags(*(one or another for one, another in zip(astuple(self), astuple(other), strict=True)))


class FlagAllReduce:
    """One small all-reduce a step, which runs while the step is computed, so that no rank waits for it.

    The price is that a request made during a step takes effect at the end of the next one.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._flags = torch.zeros(len(astuple(StepFlags())), dtype=torch.int32)
        self._work: dist.Work | None = None

    def start(self, own: StepFlags) -> None:
        """All ranks must call it, in the same order, after ``wait`` for the one before."""
        self._flags.copy_(torch.tensor(astuple(own)))
        self._work = dist.all_reduce(self._flags, dist.ReduceOp.MAX, group=self._world.control, async_op=True)

    def wait(self) -> StepFlags:
        """The flags of all ranks together; none is set where nothing was started."""
        if self._work is None:
            return StepFlags()
        self._work.wait()
        self._work = None
        return StepFlags(*map(bool, self._flags.tolist()))


@dataclass(slots=True)
class StepBoundary:
    """Every method is called by all ranks at the same step.

    The ranks agree at the beginning of a step, while nobody waits for the answer, on what they do at its end.
    """

    world: World
    flags: FlagAllReduce
    progress: Progress
    state: TrainingState
    saver: AsyncSaver
    drain: DrainSignal
    metrics: MetricBuffer
    non_finite: NonFinitePolicy
    must_store_result: bool = False  # else a last snapshot that cannot be written is a warning
    _deferred: StepFlags = field(default_factory=StepFlags)  # to the end of the epoch
    _left_at: float | None = None  # seconds of CLOCK_MONOTONIC, when the previous step of the epoch ended

    def begin_step(self, sampler: ElasticSampler) -> None:
        self.progress.begin_step(sampler)
        now, schedule, snapshots = time.monotonic(), self.saver.schedule, self.saver.snapshots
        decides = snapshots.is_coordinator
        self.flags.start(
            StepFlags(
                drain=self.drain.requested(),
                snapshot=decides and schedule.due_after_step(self.progress.step + 1, now),
                shm=decides and snapshots.has_shm and schedule.shm_due(now),
                flush=decides and self.metrics.due(now),
                writing=self.saver.in_progress,
            )
        )

    def end_step(self, sampler: ElasticSampler) -> None:
        """What is due at the end of the epoch waits for what the script does there, such as a scheduler's step.

        So does a drain: the script may use its last loss there, which no snapshot has. Since the script may take longer
        there than a drain may take, the step is saved first.
        """
        self._count_step(sampler)
        flags = self.flags.wait()
        if self._left_at is not None:
            self.saver.schedule.overhead.add_step(time.monotonic() - self._left_at, writing=flags.writing)
        if not sampler.finished:
            if flags.flush or flags.snapshot or flags.shm or flags.drain:
                self._flush_metrics()
            self._carry_out(flags)
        else:
            self._deferred = flags
            if flags.drain:
                self._flush_metrics()
                self._save_now()
        self._left_at = time.monotonic()

    def end_epoch(self) -> None:
        earlier, self._deferred, self._left_at = self._deferred | self.flags.wait(), StepFlags(), None
        self._count_left_step()
        ended = self.progress.end_epoch()
        is_last, schedule = self.progress.finished, self.saver.schedule
        due = self.saver.snapshots.is_coordinator and schedule.due_after_epoch(ended, time.monotonic())
        self.flags.start(StepFlags(self.drain.requested(), due or is_last, writing=self.saver.in_progress))
        now = self.flags.wait()
        flags = replace(earlier | now, drain=(earlier | now).drain and not is_last, writing=now.writing)
        self._flush_metrics()
        is_best = self.saver.best.would_be_best(self.progress.step)
        if is_best or (flags.snapshot and schedule.insists_after_epoch(ended)):
            self._wait_for_snapshot()
            flags = replace(flags, snapshot=True, writing=False)
        self._carry_out(flags, must_save=is_last)

    def finish(self) -> None:
        """Save what the script has trained since the last snapshot, if it ended before its epochs did."""
        self.flags.wait()
        self._count_left_step()
        self._flush_metrics()
        best = self.saver.best
        if best.monitor is not None and not best.logged:
            reporter().warn(f"monitor={best.monitor!r}: the script logged no such metric, so no best snapshot was kept")
        if self.must_store_result:
            self._store_result()
        else:
            self._save_now()

    def _store_result(self) -> None:
        """Save the end of the training, and wait for space if there is none.

        The ranks try equally often, since every try has the same result on all. Raises ResultNotStoredError.
        """
        waited, pause, phase = 0.0, _FIRST_PAUSE, reporter().phase
        while (result := self._save_now()) is not None and not (result.saved or result.invalid):
            if waited >= RESULT_TIMEOUT:
                raise ResultNotStoredError(
                    f"the last snapshot (step {result.step}) could not be written for {waited:.0f} s, so the result is "
                    f"not stored: {result.problem}"
                )
            reporter().update_status(phase="waiting for disk space")
            time.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, _MAX_PAUSE)
        reporter().update_status(phase=phase)

    def _count_left_step(self) -> None:
        """The script may have left the loop over the batches within a step, by ``break``."""
        if self.progress.in_step and self.progress.sampler is not None:
            self._count_step(self.progress.sampler)

    def _count_step(self, sampler: ElasticSampler) -> None:
        self.progress.end_step(sampler)
        reporter().update_status(step=self.progress.step)

    def _carry_out(self, flags: StepFlags, *, must_save: bool = False) -> None:
        """Do what all ranks have agreed on."""
        if flags.drain or must_save:
            self._save_now()
        elif not flags.writing:
            self._wait_for_snapshot()
            if flags.snapshot or flags.shm:
                self.saver.async_save(to_shm=not flags.snapshot)
        elif flags.snapshot:
            self.saver.skip()
        if flags.drain:
            raise Drained(self.progress.step)

    def _save_now(self) -> SaveResult | None:
        """None where the state is on disk already."""
        self._wait_for_snapshot()
        self.saver.async_save()
        return self._wait_for_snapshot()

    def _wait_for_snapshot(self) -> SaveResult | None:
        result = self.saver.wait()
        if result is not None and result.invalid:
            self._handle_non_finite(f"{result.problem} after step {result.step}")
        return result

    def _flush_metrics(self) -> None:
        points = self.metrics.average(self.world)
        for point in points:
            reporter().log_metrics(point)
        reporter().flush()
        self.saver.best.on_logged(points)
        finding = first_non_finite_loss(points)
        if finding is not None:
            self._handle_non_finite(finding)

    def _handle_non_finite(self, finding: str) -> None:
        """Loss or weights are not finite, as all ranks find at the same step boundary."""
        if not self.non_finite.needs_rollback(finding):
            return
        self.saver.wait()
        restored = self.saver.snapshots.latest()
        self.non_finite.check_rollback(None if restored is None else restored.step, finding)
        if restored is not None:
            self._roll_back(restored, finding)

    def _roll_back(self, restored: Restored, finding: str) -> None:
        """The state of ``restored``, and the data that come next: those in between are skipped."""
        skipped = self.progress.step - restored.step
        self.state.roll_back(restored, self.world.size)
        reporter().update_status(step=restored.step)
        if self.world.rank == 0:
            reporter().warn(
                f"{finding}: rolled back to the snapshot of step {restored.step}, without the data of the last "
                f"{skipped} steps"
            )
