"""What all ranks do between two steps, in agreement: save, gather what was logged, roll back, stop."""

import math
import time
from dataclasses import astuple, dataclass, field, replace
from statistics import median
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.distributed as dist

from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.training.drain import Drained, DrainSignal, LastStep
from rekindle.training.layer_recorder import LayerRecorder
from rekindle.training.process_group import World
from rekindle.training.reporter import reporter
from rekindle.training.sampler import ElasticSampler, TrainingProgress
from rekindle.training.snapshots.async_saver import AsyncSaver
from rekindle.training.snapshots.loader import RestoredSnapshot
from rekindle.training.snapshots.writer import SaveResult
from rekindle.training.step_digests import DigestRecorder
from rekindle.training.training_state import TrainingState

RESULT_TIMEOUT = 600.0  # seconds to wait for space for the last snapshot
AVERAGE_INTERVAL = 0.5  # seconds
_FIRST_PAUSE, _MAX_PAUSE = 1.0, 10.0  # seconds between two tries
_MAX_ROLLBACKS = 3  # to the same snapshot
_SPIKE_VALUES = 100  # of a loss, with which the next one is compared
SPIKE_DEVIATIONS = 10.0  # where the job asks for spikes and the script does not say which

OnNan = Literal["stop", "rollback", "ignore"]


class ResultNotStoredError(RuntimeError):
    """Raised on every rank where the training is at its end and its last snapshot could not be written."""


class NonFiniteError(ArithmeticError):
    """Raised where loss or weights are no longer finite; they were not saved. Another attempt would end the same."""


class MetricBuffer:
    """One rank's values of ``run.log`` since the last ``average``, kept on the device."""

    def __init__(self) -> None:
        self._logged: list[tuple[MetricPoint, int, dict[str, torch.Tensor]]] = []
        self._averaged_at = 0.0

    def due(self, now: float) -> bool:
        """True when it is time for ``average``; ``now`` in seconds of CLOCK_MONOTONIC."""
        return now - self._averaged_at >= AVERAGE_INTERVAL

    def add(self, step: int, epoch: int | None, weight: int, values: dict[str, Any]) -> None:
        """Keep ``values``: numbers or tensors of one element, the mean of ``weight`` samples.

        Neither communicates nor waits for a device. Raises TypeError or ValueError for anything else, naming it.
        """
        scalars = {name: _scalar(name, value) for name, value in values.items()}
        self._logged.append((MetricPoint(step, epoch, time.time(), {}), weight, scalars))

    def of_step(self, step: int) -> dict[str, float]:
        """This rank's values of ``step``, the last of each name."""
        return {
            name: float(value)
            for point, _, values in self._logged
            if point.step == step
            for name, value in values.items()
        }

    def average(self, world: World) -> list[MetricPoint]:
        """Average over the ranks that logged a value for a step, on every rank. All ranks must call it."""
        numbers = iter(_to_floats([value for _, _, values in self._logged for value in values.values()]))
        own = [(point, weight, {name: next(numbers) for name in values}) for point, weight, values in self._logged]
        self._logged = []
        self._averaged_at = time.monotonic()
        return weighted_means([entry for entries in world.gather(own) for entry in entries])


def weighted_means(entries: list[tuple[MetricPoint, int, dict[str, float]]]) -> list[MetricPoint]:
    """Average by step and name, in the order of the steps; ``entries`` are points, weights and values."""
    points: dict[int, MetricPoint] = {}
    sums: dict[tuple[int, str], tuple[float, int]] = {}
    for point, weight, values in entries:
        points.setdefault(point.step, point)
        for name, value in values.items():
            total, weights = sums.get((point.step, name), (0.0, 0))
            sums[point.step, name] = (total + value * weight, weights + weight)
    for (step, name), (total, weights) in sums.items():
        points[step].values[name] = total / weights
    return [points[step] for step in sorted(points)]


def _scalar(name: str, value: Any) -> torch.Tensor:
    tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)
    if tensor.numel() != 1:
        raise ValueError(f"log({name}=…): one number is needed, not a tensor of shape {tuple(tensor.shape)}")
    return tensor.reshape(()).to(torch.float64, copy=True)


def _to_floats(values: list[torch.Tensor]) -> list[float]:
    """Convert ``values``, with one transfer for all that are on a GPU."""
    on_device = [value for value in values if value.device.type != "cpu"]
    moved = iter(torch.stack(on_device).tolist() if on_device else [])
    return [float(value) if value.device.type == "cpu" else next(moved) for value in values]


@dataclass(slots=True)
class NonFinitePolicy:
    """What follows a loss that is not finite: ``stop`` raises, ``rollback`` restores, ``ignore`` continues."""

    on_nan: OnNan
    goes_back: bool = True  # else ``rollback`` raises, too
    _target: int | None = None  # the step of the last rollback
    _times: int = 0  # in a row

    def __post_init__(self) -> None:
        if self.on_nan not in get_args(OnNan):
            raise ValueError(f"on_nan must be one of {', '.join(get_args(OnNan))}, not {self.on_nan!r}")

    def needs_rollback(self, finding: str) -> bool:
        """True where a snapshot is to be restored. Raises NonFiniteError where the training is to stop."""
        if self.on_nan == "stop" or (self.on_nan == "rollback" and not self.goes_back):
            raise NonFiniteError(f"{finding}; on_nan='rollback' or 'ignore' would continue")
        return self.on_nan == "rollback"

    def check_rollback(self, step: int | None, finding: str) -> None:
        """Refuse, by NonFiniteError, where ``step``, the latest snapshot's, was tried too often or does not exist."""
        if step is None:
            raise NonFiniteError(f"{finding}, and there is no snapshot to roll back to")
        self._times = self._times + 1 if step == self._target else 1
        self._target = step
        if self._times > _MAX_ROLLBACKS:
            raise NonFiniteError(f"{finding}, again after {_MAX_ROLLBACKS} rollbacks to the snapshot of step {step}")


class LossFinding(NamedTuple):
    """A step whose loss or weights are suspicious, and why."""

    step: int
    text: str


def first_non_finite_loss(points: list[MetricPoint]) -> LossFinding | None:
    """Find the first logged loss that is not finite; a metric is a loss if its name contains ``loss``."""
    for point in points:
        for name, value in point.values.items():
            if "loss" in name.lower() and value is not None and not math.isfinite(value):
                return LossFinding(point.step, f"{name} is {value} at step {point.step}")
    return None


class LossSpikes:
    """Finds values of a loss far above those before it: ``deviations`` above the median of the last 100.

    A deviation is 1.48 times the median distance from the median, as of normally distributed values, and at least 1 %
    of the median. No fall is one. After a spike 100 values come first: what stays high is the new level.
    """

    def __init__(self, deviations: float | None) -> None:
        """None: find nothing. Raises ValueError."""
        if deviations is not None and not deviations > 0:
            raise ValueError(f"loss_spike must be greater than 0, not {deviations!r}")
        self._deviations = deviations
        self._values: dict[str, list[float]] = {}

    def find(self, points: list[MetricPoint]) -> LossFinding | None:
        """Add the values of these steps; return the latest spike among them."""
        found = None
        for point in points if self._deviations is not None else ():
            for name, value in point.values.items():
                if "loss" in name.lower() and value is not None and math.isfinite(value):
                    found = self._add(point.step, name, value) or found
        return found

    def _add(self, step: int, name: str, value: float) -> LossFinding | None:
        values = self._values.setdefault(name, [])
        values.append(value)
        if len(values) <= _SPIKE_VALUES:
            return None
        middle = median(before := values[:-1])
        deviation = max(1.4826 * median(abs(each - middle) for each in before), abs(middle) / 100)
        del values[0]
        if self._deviations is None or value <= middle + self._deviations * deviation:
            return None
        values.clear()
        level = f"the last {_SPIKE_VALUES} values were {middle:.3g} ± {deviation:.2g}"
        return LossFinding(step, f"{name} spike at step {step}: {value:.3g} where {level}")


@dataclass(frozen=True, slots=True)
class StepFlags:
    """What is to follow a step: requests of one rank, or of all together, of which one is enough."""

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
        self._started = False
        self._work: dist.Work | None = None  # also None in a world of one that joined no group

    def start(self, own: StepFlags) -> None:
        """Send this rank's flags, after ``wait`` for the ones before. All ranks must call it, in the same order."""
        self._flags.copy_(torch.tensor(astuple(own)))
        self._started = True
        if self._world.control is not None:
            self._work = dist.all_reduce(self._flags, dist.ReduceOp.MAX, group=self._world.control, async_op=True)

    def wait(self) -> StepFlags:
        """Wait for the flags of all ranks together; none is set where nothing was started."""
        if not self._started:
            return StepFlags()
        if self._work is not None:
            self._work.wait()
        self._started, self._work = False, None
        return StepFlags(*map(bool, self._flags.tolist()))


@dataclass(slots=True)
class StepBoundary:
    """What all ranks do between two steps; each method is called by all of them at the same step.

    They agree at the beginning of a step, while nobody waits for the answer, on what they do at its end.
    """

    world: World
    flags: FlagAllReduce
    progress: TrainingProgress
    state: TrainingState
    saver: AsyncSaver
    drain: DrainSignal
    metrics: MetricBuffer
    non_finite: NonFinitePolicy
    spikes: LossSpikes
    digests: DigestRecorder
    recorder: LayerRecorder
    last_step: int | None = None  # at which the training ends
    must_store_result: bool = False  # else a last snapshot that cannot be written is a warning
    _deferred: StepFlags = field(default_factory=StepFlags)  # to the end of the epoch
    _left_at: float | None = None  # seconds of CLOCK_MONOTONIC, when the previous step of the epoch ended

    def begin_step(self, sampler: ElasticSampler) -> None:
        """Prepare a step. Raises LastStep where no more are wanted."""
        if self._is_complete:
            raise LastStep
        self.digests.begin_step(sampler)
        self.recorder.begin_step(self.progress.step + 1, sampler)
        self.progress.begin_step(sampler)
        now, schedule, snapshots = time.monotonic(), self.saver.schedule, self.saver.snapshots
        decides = snapshots.is_coordinator
        self.flags.start(
            StepFlags(
                drain=self.drain.requested(),
                snapshot=decides and schedule.due_after_step(self.progress.step + 1, now),
                shm=decides and snapshots.has_shm and schedule.shm_due(now),
                flush=decides and self.metrics.due(now),
                writing=snapshots.in_progress,
            )
        )

    def end_step(self, sampler: ElasticSampler) -> None:
        """Count the step, and do what the ranks have agreed on.

        What is due at the end of the epoch waits for what the script does there, such as a scheduler's step. So does
        a drain: the script may use its last loss there, which no snapshot has. Since the script may take longer
        there than a drain may take, the step is saved first.
        """
        self._count_step(sampler)
        if self._is_complete:
            raise LastStep
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
        self.flags.start(StepFlags(self.drain.requested(), due or is_last, writing=self.saver.snapshots.in_progress))
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
        """Count a step within which the script has left the loop over the batches, by ``break``."""
        if self.progress.in_step and self.progress.sampler is not None:
            self._count_step(self.progress.sampler)

    @property
    def _is_complete(self) -> bool:
        return self.last_step is not None and self.progress.step >= self.last_step

    def _count_step(self, sampler: ElasticSampler) -> None:
        self.progress.end_step(sampler)
        reporter().update_status(step=self.progress.step)
        self.recorder.end_step()
        self.digests.end_step()

    def _carry_out(self, flags: StepFlags, *, must_save: bool = False) -> None:
        """Do what all ranks have agreed on."""
        if flags.drain or must_save:
            self._save_now()
        elif not flags.writing:
            self._wait_for_snapshot()
            if flags.snapshot or flags.shm:
                self.digests.check()
                self.saver.async_save(to_shm=not flags.snapshot)
        elif flags.snapshot:
            self.saver.skip()
        if flags.drain:
            raise Drained(self.progress.step)

    def _save_now(self) -> SaveResult | None:
        """Save, and wait for it; None where the state is on disk already."""
        self._wait_for_snapshot()
        self.digests.check()
        self.saver.async_save()
        return self._wait_for_snapshot()

    def _wait_for_snapshot(self) -> SaveResult | None:
        result = self.saver.wait()
        if result is not None and result.invalid:
            self._handle_non_finite(LossFinding(result.step, f"{result.problem} after step {result.step}"))
        return result

    def _flush_metrics(self) -> None:
        points = self.metrics.average(self.world)
        for point in points:
            reporter().log_metrics(point)
        reporter().flush()
        self.saver.best.on_logged(points)
        spike = self.spikes.find(points)
        if spike is not None and self.world.rank == 0:
            reporter().update_status(suspect_step=spike.step)
            reporter().warn(spike.text)
        finding = first_non_finite_loss(points)
        if finding is not None:
            self._handle_non_finite(finding)

    def _handle_non_finite(self, found: LossFinding) -> None:
        """React to a loss or weights that are not finite, which all ranks find at the same step boundary."""
        finding = found.text
        if self.non_finite.on_nan != "ignore":
            reporter().update_status(suspect_step=found.step)
        if not self.non_finite.needs_rollback(finding):
            return
        self.saver.wait()
        restored = self.saver.snapshots.latest()
        self.non_finite.check_rollback(None if restored is None else restored.step, finding)
        if restored is not None:
            self._roll_back(restored, finding)

    def _roll_back(self, restored: RestoredSnapshot, finding: str) -> None:
        """Continue with the state of ``restored`` and the data that come next: those in between are skipped."""
        skipped = self.progress.step - restored.step
        self.state.roll_back(restored, self.world.size)
        reporter().update_status(step=restored.step)
        if self.world.rank == 0:
            reporter().warn(
                f"{finding}: rolled back to the snapshot of step {restored.step}, without the data of the last "
                f"{skipped} steps"
            )
