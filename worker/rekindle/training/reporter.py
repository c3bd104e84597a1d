"""What a rank reports about itself: its progress (``status.json``), its metrics (``metrics.jsonl``), and problems."""

import atexit
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from operator import index
from pathlib import Path
from typing import Any

from rekindle.contract.environment import RankEnv
from rekindle.contract.files import append_lines, read_json, write_json
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, notify
from rekindle.contract.run_dir.rank_records import MetricPoint, RankStatus

STATUS_INTERVAL = 0.2  # seconds between two writes when nothing but the step has changed
METRICS_INTERVAL = 0.5  # seconds between two writes
_MAX_REASON = 300  # characters
_RATE_WINDOW = 10.0  # seconds over which steps per second are counted
_PROGRESS: dict[str, Callable[[Any], str | int]] = {
    "phase": str, "epoch": math.floor, "epochs": math.floor, "step": index, "steps": index, "notice": str,
}  # fmt: skip
_DELAYED_FIELDS = frozenset({"step", "steps_per_second", "saving_seconds"})
_log = logging.getLogger("rekindle")


def report(**values: Any) -> None:
    """Show the progress and the metrics of this rank on the page: ``report(epoch=3, step=1200, loss=0.41)``.

    ``phase, epoch, epochs, step, steps`` and ``notice`` are its progress; every other name is a metric, of which rank
    0's are kept. ``epoch`` may have a fraction, which is dropped. May be called at any rate. Does nothing where the
    script is not run by rekindle.
    """
    reporter().report(**values)


@cache
def reporter() -> "Reporter":
    """Make the reporter of this process, once."""
    return Reporter(RankEnv.read(os.environ))


class Reporter:
    """Writes the second block of this rank's ``RankStatus`` while the script runs."""

    def __init__(self, env: RankEnv) -> None:
        self._env, self._pid = env, os.getpid()
        value = None if env.rank_dir is None else read_json(env.rank_dir.status)
        self._status = None if value is None else RankStatus.from_json(value)  # None outside rekindle
        rank_dir = env.rank_dir if env.rank == 0 and self._status is not None else None
        self._metrics = None if rank_dir is None else MetricLog(rank_dir.metrics)
        self._step, self._epoch = 0, None  # as last reported, also without a status
        self._status_at = self._metrics_at = 0.0
        self._stale = False
        self._rate: deque[tuple[float, int]] = deque()
        if self._status is not None:
            atexit.register(self.flush)

    @property
    def device_kind(self) -> str | None:
        """``cpu`` or ``cuda``, as the job assigned to this rank; None outside rekindle."""
        return None if self._status is None else self._status.device.partition(":")[0]

    @property
    def phase(self) -> str | None:
        """Phase as last reported; None outside rekindle."""
        return None if self._status is None else self._status.phase

    def report(self, **values: Any) -> None:
        """Do what the function ``report`` says. Raises TypeError for a metric or a step that is not a number."""
        status = {name: _progress(name, value) for name, value in values.items() if name in _PROGRESS}
        metrics: dict[str, float | None] = {
            name: _number(name, value) for name, value in values.items() if name not in _PROGRESS
        }
        if status:
            self.update_status(**status)
        if metrics:
            self.log_metrics(MetricPoint(self._step, self._epoch, time.time(), metrics))

    def update_status(self, **values: Any) -> None:
        """Change fields of the status. All but the step are written at once."""
        self._step, self._epoch = values.get("step", self._step), values.get("epoch", self._epoch)
        status = self._status
        if status is None or os.getpid() != self._pid:
            return
        changed = {name for name, value in values.items() if getattr(status, name) != value}
        for name in changed:
            setattr(status, name, values[name])
        self._stale = self._stale or bool(changed)
        now = time.monotonic()
        if "step" in changed:
            status.reported_steps += 1
            self._update_rate(status, now)
        if changed - _DELAYED_FIELDS or (self._stale and now - self._status_at >= STATUS_INTERVAL):
            self._write_status(now)

    def log_metrics(self, point: MetricPoint) -> None:
        """Add one point to the metrics; rank 0's are kept, other ranks' dropped."""
        if self._metrics is None or os.getpid() != self._pid:
            return
        self._metrics.add(point)
        if time.monotonic() - self._metrics_at >= METRICS_INTERVAL:
            self._flush_metrics()

    def warn(self, notice: str) -> None:
        """Log what the user should see, and show it on the page until ``clear`` or the next notice."""
        _log.warning("%s", notice)
        self.update_status(notice=notice)

    def clear(self, notice: str) -> None:
        """Remove ``notice``, if it is still shown."""
        if self._status is not None and self._status.notice == notice:
            self.update_status(notice=None)

    def skipped(self, step: int, reason: str) -> None:
        """Report that the snapshot of ``step`` is damaged and was skipped."""
        self.warn(f"snapshot {step} skipped: {reason}")
        self._notify(MessageType.SNAPSHOT_SKIPPED, step=step, reason=reason[:_MAX_REASON])

    def resumed(self, step: int) -> None:
        """Report that training resumes from the snapshot of ``step``."""
        self.update_status(resumed_from_step=step, step=step)
        self._notify(MessageType.RESUMED, step=step)

    def _notify(self, message_type: MessageType, **fields: Any) -> None:
        """Send the keeper, where there is one, a message in the name of all ranks."""
        if self._env.rank == 0 and self._env.run_dir is not None:
            notify(self._env.run_dir, ControlMessage(message_type, self._env.attempt, **fields), self._env.node)

    def flush(self) -> None:
        """Write what was delayed."""
        if self._status is None or os.getpid() != self._pid:
            return
        if self._stale:
            self._write_status(time.monotonic())
        self._flush_metrics()

    def _write_status(self, now: float) -> None:
        """Write the status; where the disk is full, training continues, and the next one may fit."""
        status, rank_dir = self._status, self._env.rank_dir
        if status is None or rank_dir is None:
            return
        status.updated_at = time.time()
        self._status_at = now
        try:
            write_json(rank_dir.status, status.to_json(), durable=False)
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
            self.warn(f"metrics up to step {self._step} lost: {error}")

    def _update_rate(self, status: RankStatus, now: float) -> None:
        if status.step is None:
            return
        self._rate.append((now, status.step))
        while now - self._rate[0][0] > _RATE_WINDOW and len(self._rate) > 2:
            self._rate.popleft()
        then, first = self._rate[0]
        if now > then and status.step > first:
            status.steps_per_second = round((status.step - first) / (now - then), 3)


def _progress(name: str, value: Any) -> str | int | None:
    try:
        return None if value is None else _PROGRESS[name](value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"report({name}=…): must be a whole number, not {value!r}") from error


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"report({name}=…): a metric must be a number, not {type(value).__name__}; names that are not metrics: "
            f"{', '.join(sorted(_PROGRESS))}"
        ) from error


class MetricLog:
    """Points in ``metrics.jsonl``: buffered in memory, appended in whole lines by ``flush``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[dict[str, Any]] = []

    def add(self, point: MetricPoint, **more: Any) -> None:
        """Buffer ``point`` with ``more`` fields; numbers that are not finite become null, since JSON has no NaN."""
        value = point.to_json() | more
        value["values"] = {
            name: item if item is not None and math.isfinite(item) else None for name, item in point.values.items()
        }
        self._lines.append(value)

    def flush(self) -> None:
        """Append the buffer. Raises OSError where it does not fit; those points are lost, not the next ones."""
        lines, self._lines = self._lines, []
        if lines:
            append_lines(self._path, lines, durable=False)
