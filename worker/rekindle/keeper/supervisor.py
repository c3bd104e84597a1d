"""The keeper's loop: attempt, outcome, decision, and again, until the job is over or a stop is requested."""

import json
import os
import random
import secrets
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rekindle.contract.environment import attempt_environment
from rekindle.contract.files import fsync_directory, write_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import MAX_ATTEMPT, RunDir
from rekindle.contract.run_dir.placeholders import write_arguments
from rekindle.contract.run_dir.script_files import shown_path
from rekindle.contract.run_dir.snapshot_dir import SnapshotDir, write_void_attempt
from rekindle.contract.safe_open import list_numbers, open_regular
from rekindle.contract.states import JobIntent
from rekindle.keeper.attempt.plan import AttemptPlan
from rekindle.keeper.attempt.shutdown import STOP_GRACE
from rekindle.keeper.attempt_result import AttemptResult, Ending, read_lost_attempt
from rekindle.keeper.attempt_runner import LocalRunner, MakeRunner, Resources
from rekindle.keeper.buffered_journal import BufferedJournal, journal_time
from rekindle.keeper.diagnosis import diagnose
from rekindle.keeper.event_loop import EventLoop, Events
from rekindle.keeper.hangs.stall import LONG_TIMEOUT
from rekindle.keeper.history import failure_stats, read_history, seconds_running
from rekindle.keeper.observers.checkpoints import move_newer_away
from rekindle.keeper.observers.script import add_checkpoints_of_lost
from rekindle.keeper.retry_policy import Retry, Stop, decide, timeout_factor

T = TypeVar("T")

_JOURNALED = ("resumed_from_step", "last_step", "snapshot_step", "saving_seconds", "progress", "running_seconds")
_MAX_BYTES = 16 << 20  # of a file that the server writes for the keeper
_ENDINGS = {JobIntent.DRAIN: Ending.DRAIN, JobIntent.CANCEL: Ending.CANCEL}


class UnreadableError(Exception):
    """A file that the server writes for the keeper is missing or invalid; the message names it."""


def deadline(time_limit: float, started_at: float | None) -> float:
    """The end of a run's time limit in seconds of CLOCK_MONOTONIC: later changes of the wall clock do not move it.

    ``started_at``: seconds since the epoch when the run's first attempt began; None where it is about to.
    """
    elapsed = 0.0 if started_at is None else max(journal_time() - started_at, 0.0)
    return time.monotonic() - elapsed + time_limit


class Keeper:
    """Owns the run directory (its caller holds the lock) from ``begin`` to the end of ``supervise``."""

    def __init__(
        self,
        run_dir: RunDir,
        events: EventLoop,
        make_runner: MakeRunner = LocalRunner,
        check_owner: Callable[[], None] | None = None,
        **stamp: Any,
    ) -> None:
        """``check_owner``, ``stamp``: see ``BufferedJournal``."""
        self._run_dir, self._events = run_dir, events
        self.spec = _read(run_dir.spec, JobSpec.from_json)
        self._intent_version: tuple[int, int] | None = None
        self._intent = self._read_intent()
        self.run = self._intent.run
        self._runner = make_runner(run_dir, self.spec, self._intent, events)
        self._journal = BufferedJournal(run_dir.journal, self._wait_for_space, check_owner, **stamp)
        self._history = read_history(run_dir.journal, self.run)
        self._number = self._history.last.number  # of the latest attempt
        self._resources: Resources | None = None  # of the attempt that runs
        self._deadline: float | None = None  # of the time limit, from the first attempt on
        self.is_over = False  # the job has ended, and no other keeper follows
        self._terminated = False  # this keeper received SIGTERM, or knows that it soon would
        self._leave_reason: str | None = None  # how it knows

    def begin(self) -> bool:
        """Kill what an earlier keeper left and record that this one has started; False when the job is over."""
        self._runner.begin()
        if self._history.job_ended:
            return False
        self._run_dir.snapshots.mkdir(exist_ok=True)
        self._journal.write(
            RecordType.KEEPER_STARTED,
            run=self.run,
            keeper=ProcessIdentity.own().to_json(),
            devices=self._intent.devices,
        )
        if self._history.run_started_at is None:
            self._go_back()
        if self._history.open_attempt is not None:
            result = self._read_lost_attempt(self._history.open_attempt)
            is_lost = result.ending is Ending.KEEPER_LOST
            lost = self._history.lost_outcome(self._intent.excluded) if is_lost else diagnose(result)
            return not self._is_over(result, lost)
        if self._history.unjudged:
            return not self._decide(self._number, self._history.ended[-1].ended_by)
        return True

    def _go_back(self) -> None:
        """Begin the run from what a person has chosen; harmless if repeated by the next keeper."""
        step, path = self._intent.snapshot, self._intent.checkpoint
        if step is not None:
            quarantined = roll_back(self._run_dir, step)
            found = {"missing": True} if quarantined is None else {"quarantined": quarantined}
            self._journal.write(RecordType.ROLLED_BACK, run=self.run, step=step, **found)
        if path is not None:
            moved = move_newer_away(self._run_dir, path, self.run)
            names = [shown_path(each, self._run_dir.code) for each in moved or ()]
            chosen = {"path": shown_path(path, self._run_dir.code), "moved": names, "missing": moved is None}
            self._journal.write(RecordType.CHECKPOINT_CHOSEN, run=self.run, **chosen)

    def _read_lost_attempt(self, attempt: AttemptInfo) -> AttemptResult:
        """Read what is left of an attempt. After a reboot exit code 0 is not trusted: a shutdown sends SIGTERM."""
        requested = {ending.value: ending for ending in STOP_GRACE}.get(attempt.stop_requested or "")
        at_shutdown = Ending.KEEPER_LOST if self._history.host_lost else None
        stop = requested or _ENDINGS.get(self._intent.intent) or at_shutdown
        result = read_lost_attempt(self._run_dir, attempt.number, attempt.world_size, stop)
        result.running_seconds = seconds_running(attempt)
        add_checkpoints_of_lost(result, self._run_dir, self.spec.watch)
        return result

    def supervise(self) -> None:
        """Run attempts until the decision is to stop. Signals are events meanwhile."""
        with self._events.signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            try:
                self._run_attempts()
            finally:
                self._runner.close(is_over=self.is_over)

    def leave(self, reason: str) -> None:
        """Stop as at SIGTERM, which would come too late; ``reason`` is a sentence."""
        self._terminated, self._leave_reason = True, reason

    def _run_attempts(self) -> None:
        while (ending := self._requested_stop(self._events.wait(0))) is None:
            if (resources := self._runner.find_resources(self._requested_stop)) is None:
                continue
            result = self._attempt(resources)
            if self._is_over(result, diagnose(result)):
                return
        if not self._terminated:
            state = "queued" if ending is Ending.DRAIN else "cancelled"
            before = "stopped on request before an attempt"
            self._end_job(state, self._intent.reason or before, None)

    def _attempt(self, resources: Resources) -> AttemptResult:
        number = self._number = self._number + 1
        generation = f"{number}-{secrets.token_hex(4)}"
        self._journal.check_owner()
        write_json(self._run_dir.fence, {"generation": generation})
        self._journal.write(
            RecordType.ATTEMPT_STARTED,
            attempt=number,
            run=self.run,
            world_size=resources.world_size,
            devices=resources.devices,
            **({"hosts": resources.hosts} if resources.hosts else {}),
        )
        write_arguments(self.spec, self._run_dir, number)
        if self._deadline is None and self.spec.time_limit is not None:
            self._deadline = deadline(self.spec.time_limit, self._history.run_started_at)
        environment = attempt_environment(
            run_dir=self._run_dir,
            attempt=number,
            generation=generation,
            snapshot_policy=json.dumps(self.spec.snapshot.to_json()),
            failures=failure_stats(self._run_dir.journal),
            devices_per_rank=self.spec.devices_per_rank,
            slots=resources.devices,
        )
        plan = AttemptPlan(
            spec=self.spec,
            number=number,
            world_size=resources.world_size,
            gpus=resources.gpus,
            environment=environment,
            deadline=self._deadline,
            log_bytes=self._intent.log_bytes,
            requested_stop=partial(self._requested_end, resources),
            hosts=resources.hosts,
            long_timeout=LONG_TIMEOUT * timeout_factor(self._history.ended),
        )
        self._resources = resources
        result = self._runner.run(plan, self._journal)
        self._resources, result.stop_reason = None, self._leave_reason or self._intent.reason
        return result

    def _is_over(self, result: AttemptResult, outcome: Outcome) -> bool:
        """Record the end of an attempt and decide; when another is to follow, wait until it is due."""
        known = {name: getattr(result, name) for name in _JOURNALED} | {"loaded": result.own_checkpoint_loaded}
        self._history.ended.append(AttemptInfo(result.attempt, outcome=outcome, **known))
        self._journal.write(RecordType.ATTEMPT_ENDED, attempt=result.attempt, outcome=outcome.to_json(), **known)
        return self._decide(result.attempt, outcome)

    def _decide(self, attempt: int, outcome: Outcome) -> bool:
        """True when the job is over after ``attempt``, whose end is in the journal; else wait for the next one."""
        if outcome.klass is OutcomeClass.CANCELLED:
            state = "cancelled" if self._intent.intent is JobIntent.CANCEL else "failed"
            return self._end_job(state, outcome.message, outcome)
        stop = self._requested_stop(Events())
        if outcome.klass is OutcomeClass.PREEMPTED and stop in (Ending.DRAIN, Ending.SHUTDOWN):
            return self._terminated or self._end_job("queued", self._intent.reason or "drained on request", outcome)
        jitter = random.random()  # noqa: S311  # spreads restarts, guards nothing
        decision = decide(self._history.ended, self._intent.max_failures, jitter, self._intent.healthy_seconds)
        if isinstance(decision, Stop):
            return self._end_job("succeeded" if decision.succeeded else "failed", decision.reason, outcome)
        self._wait_for_next(attempt, decision)
        return False

    def _end_job(self, state: str, reason: str, outcome: Outcome | None) -> bool:
        self.is_over = state != "queued"
        if self.is_over:
            shutil.rmtree(self._run_dir.memory, ignore_errors=True)
        last = None if outcome is None else outcome.to_json()
        self._journal.write(RecordType.JOB_ENDED, run=self.run, state=state, reason=reason, outcome=last)
        return True

    def _wait_for_next(self, attempt: int, retry: Retry) -> None:
        next_try_at = journal_time() + retry.delay
        self._journal.write(RecordType.RETRY_DECIDED, attempt=attempt, next_try_at=next_try_at, **asdict(retry))
        due = time.monotonic() + retry.delay
        events = Events()
        while self._requested_stop(events) is None and (left := due - time.monotonic()) > 0:
            events = self._events.wait(left)

    def _wait_for_space(self, seconds: float) -> None:
        """Wait while the disk is full. Raises OSError when this keeper is asked to leave."""
        self._requested_stop(self._events.wait(seconds))
        if self._terminated:
            raise OSError(f"{self._run_dir.journal} cannot be written: its disk is full")

    def _requested_stop(self, events: Events) -> Ending | None:
        """Read the intent; messages about it only end a wait: the server may have died between file and message."""
        with suppress(OSError, UnreadableError):  # then the known intent stays in force
            if self._intent_version != _version(self._run_dir.intent):
                before, self._intent = self._intent, self._read_intent()
                if (self._intent.devices, self._intent.gpus) != (before.devices, before.gpus):
                    self._change_devices()
        if events.signals:
            self._terminated = True
        return Ending.SHUTDOWN if self._terminated else _ENDINGS.get(self._intent.intent)

    def _requested_end(self, resources: Resources, events: Events) -> Ending | None:
        """Return why an attempt on ``resources`` is to end: a stop, or other devices. To gain some can wait."""
        stop, devices = self._requested_stop(events), self._intent.devices
        if stop is not None or devices == resources.devices or len(devices) < self.spec.devices_per_rank:
            return stop
        return Ending.GROW if set(devices) > set(resources.devices) else Ending.RESIZE

    def _change_devices(self) -> None:
        """Journal the devices that this keeper may use: the server gives none of them to others before that record."""
        self._runner.change_devices(self._intent)
        running = [] if self._resources is None else self._resources.devices
        held = list(dict.fromkeys([*running, *self._intent.devices]))
        self._journal.write_nowait(RecordType.DEVICES_HELD, run=self.run, devices=held)

    def _read_intent(self) -> RunIntent:
        version = None
        with suppress(OSError):
            version = _version(self._run_dir.intent)  # before it is read: the next may replace it
        intent = _read(self._run_dir.intent, RunIntent.from_json)
        self._intent_version = version  # only now: what could not be read is read again
        return intent


def roll_back(run_dir: RunDir, step: int) -> list[int] | None:
    """Let training resume from the snapshot of ``step``; returns the quarantined steps, None where it does not exist.

    Quarantined snapshots stay whole, but are no longer chosen, and are deleted when training has passed their step
    again. Once an attempt of the run has begun this must not be repeated, since later snapshots are then its own.
    Raises OSError.
    """
    snapshots = SnapshotDir(run_dir.snapshots)
    steps = snapshots.steps()
    if step not in steps:
        return None
    shutil.rmtree(run_dir.memory, ignore_errors=True)  # holds a copy of a later step
    if run_dir.launches.exists():  # and so may other machines
        write_void_attempt(run_dir.memory_void, max(list_numbers(run_dir.attempts, MAX_ATTEMPT), default=0))
    later = sorted(each for each in steps if each > step)
    for each in later:
        shutil.rmtree(snapshots.quarantine_path(each), ignore_errors=True)
        snapshots.path(each).rename(snapshots.quarantine_path(each))
    fsync_directory(run_dir.snapshots)
    return later


def _version(path: Path) -> tuple[int, int]:
    """Version of the file, which the server replaces as a whole. Raises OSError where there is none.

    It is opened: a network file system may not ask its server else.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # the script may have put a FIFO there
    try:
        stat = os.fstat(fd)
    finally:
        os.close(fd)
    return stat.st_ino, stat.st_mtime_ns


def _read(path: Path, from_json: Callable[[Any], T]) -> T:
    try:
        with open_regular(path) as file:  # the script may have put a FIFO there
            return from_json(json.loads(file.read(_MAX_BYTES)))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(f"{path} is not what the server writes there: {error!r}") from error
