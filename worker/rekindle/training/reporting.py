"""What a rank tells about itself: where it is (``status.json``), how it fares (``metrics.jsonl``), what went wrong."""

import atexit
import logging
import os
import time
from collections import deque
from dataclasses import dataclass
from functools import cache
from typing import Any

from rekindle.contract.environment import RankEnv
from rekindle.contract.files import read_json, write_json
from rekindle.contract.run_dir.control import ControlMessage, MessageType, notify
from rekindle.contract.run_dir.rank_records import MetricPoint, RankStatus
from rekindle.training.metric_log import MetricLog

STATUS_INTERVAL = 0.2  # seconds between two writes when nothing but the step has changed
METRICS_INTERVAL = 0.5  # seconds between two writes
_LONGEST_REASON = 300  # characters
_RATE_WINDOW = 10.0  # seconds over which steps per second are counted
_PLACE_FIELDS = frozenset({"step", "steps_per_second", "saving_seconds"})  # what may wait
_STATUS_FIELDS = frozenset(
    {
        "phase",
        "epoch",
        "epochs",
        "step",
        "steps",
        "resumed_from_step",
        "snapshot_step",
        "memory_step",
        "snapshot_policy",
        "saving_seconds",
        "notice",
        "steps_per_second",
    }
)
_log = logging.getLogger("rekindle")


def report(**values: Any) -> None:
    """Tell the page where this rank is and how it fares: ``report(epoch=3, step=1200, loss=0.41)``.

    ``phase, epoch, epochs, step, steps`` and ``notice`` say where it is; every other name is a metric, of which rank
    0's are kept. May be called as often as one likes. Does nothing where no rekindle runs the script.
    """
    reporter().report(**values)


@cache
def reporter() -> "Reporter":
    """The one of this process."""
    return Reporter(RankEnv.read(os.environ))


@dataclass(slots=True)
class _Place:
    """Where the rank was last said to be, known even where there is no status to write it to."""

    step: int = 0
    epoch: int | None = None


class Reporter:
    """Single writer of the second block of this rank's ``RankStatus`` while the script runs."""

    def __init__(self, env: RankEnv) -> None:
        self._env, self._pid = env, os.getpid()
        self._status = _read_status(env)
        rank_dir = env.rank_dir if env.rank == 0 and self._status is not None else None
        self._metrics = None if rank_dir is None else MetricLog(rank_dir.metrics)
        self._place = _Place()
        self._status_at = self._metrics_at = 0.0
        self._stale = False
        self._rate: deque[tuple[float, int]] = deque()
        if self._status is not None:
            atexit.register(self.flush)

    @property
    def device_kind(self) -> str | None:
        """``cpu`` or ``cuda``, as the job gives this rank; None outside rekindle."""
        return None if self._status is None else self._status.device.partition(":")[0]

    @property
    def phase(self) -> str | None:
        """What the rank was last said to do; None outside rekindle."""
        return None if self._status is None else self._status.phase

    def report(self, **values: Any) -> None:
        """See the function of this name. Raises TypeError for a metric that is not a number."""
        where = {name: value for name, value in values.items() if name in _STATUS_FIELDS}
        metrics: dict[str, float | None] = {
            name: _number(name, value) for name, value in values.items() if name not in _STATUS_FIELDS
        }
        if where:
            self.place(**where)
        if metrics:
            self.measure(MetricPoint(self._place.step, self._place.epoch, time.time(), dict(metrics)))

    def place(self, **where: Any) -> None:
        """Change fields of the status. All but the step are written at once."""
        self._place.step = where.get("step", self._place.step)
        self._place.epoch = where.get("epoch", self._place.epoch)
        status = self._status
        if status is None or os.getpid() != self._pid:
            return
        changed = {name for name, value in where.items() if getattr(status, name) != value}
        for name in changed:
            setattr(status, name, where[name])
        self._stale = self._stale or bool(changed)
        now = time.monotonic()
        if "step" in changed:
            self._note_rate(status, now)
        if changed - _PLACE_FIELDS or (self._stale and now - self._status_at >= STATUS_INTERVAL):
            self._write_status(now)

    def measure(self, point: MetricPoint) -> None:
        """Add one point to the metrics; rank 0's are kept, other ranks' dropped."""
        if self._metrics is None or os.getpid() != self._pid:
            return
        self._metrics.add(point)
        if time.monotonic() - self._metrics_at >= METRICS_INTERVAL:
            self._flush_metrics()

    def warn(self, notice: str) -> None:
        """Say something that the user should see: in the log, and on the page until ``clear`` or the next notice."""
        _log.warning("%s", notice)
        self.place(notice=notice)

    def clear(self, notice: str) -> None:
        """Take ``notice`` back, if it still stands."""
        if self._status is not None and self._status.notice == notice:
            self.place(notice=None)

    def skipped(self, step: int, reason: str) -> None:
        """Say that the snapshot of ``step`` is damaged and was passed over."""
        self.warn(f"snapshot {step} skipped: {reason}")
        self._notify(MessageType.SNAPSHOT_SKIPPED, step=step, reason=reason[:_LONGEST_REASON])

    def resumed(self, step: int) -> None:
        """Say that training goes on from the snapshot of ``step``."""
        self.place(resumed_from_step=step, step=step)
        self._notify(MessageType.RESUMED, step=step)

    def _notify(self, message_type: MessageType, **fields: Any) -> None:
        """Send the keeper, where there is one, a message in the name of all ranks."""
        if self._env.rank == 0 and self._env.run_dir is not None:
            notify(self._env.run_dir, ControlMessage(message_type, self._env.attempt, **fields))

    def flush(self) -> None:
        """Write what has waited."""
        if self._status is None or os.getpid() != self._pid:
            return
        if self._stale:
            self._write_status(time.monotonic())
        self._flush_metrics()

    def _write_status(self, now: float) -> None:
        """A status that cannot be written (a full disk) must not end the training; the next one may fit."""
        status, path = self._status, self._env.rank_dir
        if status is None or path is None:
            return
        status.updated_at, status.updated_monotonic = time.time(), now
        self._status_at = now
        try:
            write_json(path.status, status.to_json(), durable=False)
            self._stale = False
        except OSError as error:
            _log.debug("status of rank %s not written: %s", status.rank, error)

    def _flush_metrics(self) -> None:
        if self._metrics is None:
            return
        self._metrics_at = time.monotonic()
        try:
            self._metrics.flush()
        except OSError as error:
            self.warn(f"metrics up to step {self._place.step} lost: {error}")

    def _note_rate(self, status: RankStatus, now: float) -> None:
        step = status.step
        if step is None:
            return
        self._rate.append((now, step))
        while now - self._rate[0][0] > _RATE_WINDOW and len(self._rate) > 2:
            self._rate.popleft()
        (then, first), passed = self._rate[0], now - self._rate[0][0]
        if passed > 0 and step > first:
            status.steps_per_second = round((step - first) / (now - then), 3)


def _read_status(env: RankEnv) -> RankStatus | None:
    """The status that the rank's wrapper has begun, or None outside rekindle."""
    if env.rank_dir is None:
        return None
    value = read_json(env.rank_dir.status)
    return None if value is None else RankStatus.from_json(value)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"report({name}=…): a metric must be a number, not {type(value).__name__}; names that are no metrics: "
            f"{', '.join(sorted(_STATUS_FIELDS))}"
        ) from error
