"""The keeper: attempt, outcome, verdict, and again, until the job is over or somebody wants it to stop."""

import json
import os
import random
import secrets
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rekindle.contract.files import write_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent
from rekindle.keeper.agents import Agents
from rekindle.keeper.attempt import Attempt, Plan
from rekindle.keeper.attempt_files import read_lost_attempt
from rekindle.keeper.diagnosis import diagnose
from rekindle.keeper.facts import AttemptFacts, Ending
from rekindle.keeper.gpu_memory import GpuMemory
from rekindle.keeper.history import failure_stats, read_history
from rekindle.keeper.patient_journal import PatientJournal
from rekindle.keeper.process_tree import end_all, leftovers, reap
from rekindle.keeper.rewinding import rewind
from rekindle.keeper.time_limit import TimeLimit
from rekindle.keeper.verdict import Ended, Retry, Stop, cannot_be_forked, decide
from rekindle.keeper.watch import Events, Watch

T = TypeVar("T")

_ENDINGS = {JobIntent.DRAIN: Ending.DRAIN, JobIntent.CANCEL: Ending.CANCEL}


class UnreadableError(Exception):
    """A file that the server writes for the keeper is missing or senseless; the message names it."""


class NoRoomError(OSError):
    """The disk was full until somebody wanted the keeper to leave."""


class Keeper:
    """Owns the run directory (its caller holds the lock) from ``begin`` to the end of ``supervise``."""

    def __init__(self, run_dir: RunDir, watch: Watch) -> None:
        self._run_dir, self._watch = run_dir, watch
        self._spec = _read(run_dir.spec, JobSpec.from_json)
        self._intent = self._read_intent()
        self._journal = PatientJournal(run_dir.journal, self._wait_for_room)
        self._history = read_history(run_dir.journal, self._intent.run)
        self._agents = Agents(run_dir, run_dir.job_id, len(self._intent.devices), watch.close)
        self._warm = self._spec.warm and not self._history.went_cold
        self._limit: TimeLimit | None = None  # from the first attempt on
        self._terminated = False  # a SIGTERM told this keeper to leave
        self._gpus = _visible_gpus() if self._spec.device == "cuda" else []

    @property
    def spec(self) -> JobSpec:
        return self._spec

    @property
    def run(self) -> int:
        return self._intent.run

    def begin(self) -> bool:
        """Clear away what an earlier keeper left and say that this one is here; False when the job is over."""
        end_all(partial(leftovers, self._run_dir.root), reap)
        self._gpu_memory = GpuMemory(self._gpus)
        if self._history.job_ended:
            return False
        self._run_dir.snapshots.mkdir(exist_ok=True)
        identity = asdict(ProcessIdentity.own())
        lost = self._history.lost_outcome()
        self._journal.write(RecordType.KEEPER_STARTED, run=self._intent.run, keeper=identity)
        if not self._history.attempted:
            self._rewind()
        if self._history.open_attempt is not None:
            facts = read_lost_attempt(self._run_dir, self._history.open_attempt, self._history.open_world_size)
            self._history.open_attempt = None
            return not self._is_over(facts, diagnose(facts) if facts.ending is Ending.DONE else lost)
        if self._history.unjudged:
            return not self._judge(self._history.last_attempt, self._history.ended[-1].outcome)
        return True

    def _rewind(self) -> None:
        """Before the first attempt of a run; done twice, where a keeper dies over it, it does no harm."""
        step = self._intent.snapshot
        if step is not None:
            quarantined = rewind(self._run_dir, step)
            self._journal.write(RecordType.ROLLED_BACK, run=self._intent.run, step=step, quarantined=quarantined)

    def supervise(self) -> None:
        """Run attempts until the verdict is to stop. Signals are events meanwhile."""
        with self._watch.signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            try:
                self._run_attempts()
            finally:
                self._agents.dismiss()

    def _run_attempts(self) -> None:
        while (ending := self._stop_wanted(self._watch.wait(0))) is None:
            facts = self._attempt()
            if self._is_over(facts, diagnose(facts)):
                return
        if not self._terminated:
            self._end_job("queued" if ending is Ending.DRAIN else "cancelled", "stopped before an attempt", None)

    def _attempt(self) -> AttemptFacts:
        number = self._history.last_attempt = self._history.last_attempt + 1
        generation = f"{number}-{secrets.token_hex(4)}"
        write_json(self._run_dir.fence, {"generation": generation})
        devices = self._intent.devices
        self._journal.write(
            RecordType.ATTEMPT_STARTED,
            attempt=number,
            run=self._intent.run,
            generation=generation,
            world_size=len(devices),
            devices=devices,
            warm=self._warm,
        )
        self._limit = self._limit or TimeLimit(self._spec.time_limit, self._history.run_started_at)
        snapshot_policy = json.dumps(self._spec.snapshot.to_json())
        failures = failure_stats(self._run_dir.journal)
        deadline, stop_wanted = self._limit.deadline, self._stop_wanted
        plan = Plan(number, generation, len(devices), self._gpus, snapshot_policy, failures, deadline, stop_wanted)
        spec = replace(self._spec, warm=self._warm)
        facts = Attempt(plan, spec, self._run_dir, self._journal, self._watch, self._agents).run()
        facts.gpu_memory_held = self._gpu_memory.wait_given_back()
        return facts

    def _is_over(self, facts: AttemptFacts, outcome: Outcome) -> bool:
        """Judge an ended attempt; when another is to follow, wait until it is due."""
        self._end_attempt(facts, outcome)
        return self._judge(facts.attempt, outcome)

    def _judge(self, attempt: int, outcome: Outcome) -> bool:
        """True when the job is over after ``attempt``, whose end the journal tells; else wait for the next one."""
        if outcome.klass is OutcomeClass.CANCELLED:
            state = "cancelled" if self._intent.intent is JobIntent.CANCEL else "failed"
            return self._end_job(state, outcome.message, outcome)
        if outcome.klass is OutcomeClass.PREEMPTED and self._stop_wanted(Events()) is Ending.DRAIN:
            return self._terminated or self._end_job("queued", "drained on request", outcome)
        if self._warm and cannot_be_forked(outcome):
            self._warm = False
            self._wait_for_next(attempt, Retry(0.0, "the script cannot run in a fork: starting cold from now on"))
            return False
        jitter = random.random()  # noqa: S311  # spreads restarts, guards nothing
        verdict = decide(self._history.ended, self._intent.max_failures, jitter)
        if isinstance(verdict, Stop):
            return self._end_job("succeeded" if verdict.succeeded else "failed", verdict.reason, outcome)
        self._wait_for_next(attempt, verdict)
        return False

    def _end_attempt(self, facts: AttemptFacts, outcome: Outcome) -> None:
        self._history.ended.append(Ended(outcome, facts.progressed))
        self._journal.write(
            RecordType.ATTEMPT_ENDED,
            attempt=facts.attempt,
            outcome=outcome.to_json(),
            resumed_from_step=facts.resumed_from_step,
            last_step=facts.last_step,
            snapshot_step=facts.snapshot_step,
            saving_seconds=facts.saving_seconds,
            progressed=facts.progressed,
        )

    def _end_job(self, state: str, reason: str, outcome: Outcome | None) -> bool:
        if state != "queued":
            shutil.rmtree(self._run_dir.memory, ignore_errors=True)
        self._journal.write(
            RecordType.JOB_ENDED,
            run=self._intent.run,
            state=state,
            reason=reason,
            outcome=None if outcome is None else outcome.to_json(),
        )
        return True

    def _wait_for_next(self, attempt: int, verdict: Retry) -> None:
        self._journal.write(
            RecordType.RETRY_DECIDED,
            attempt=attempt,
            reason=verdict.reason,
            delay=verdict.delay,
            next_try_at=time.time() + verdict.delay,
        )
        due = time.monotonic() + verdict.delay
        events = Events()
        while self._stop_wanted(events) is None and (left := due - time.monotonic()) > 0:
            events = self._watch.wait(left)

    def _wait_for_room(self, seconds: float) -> None:
        """While the disk is full. Raises NoRoomError when somebody wants this keeper to leave."""
        self._stop_wanted(self._watch.wait(seconds))
        if self._terminated:
            raise NoRoomError(f"{self._run_dir.journal} cannot be written: its disk is full")

    def _stop_wanted(self, events: Events) -> Ending | None:
        rung = any(message.get("bell") == "intent" for message in events.messages)
        if rung or not self._run_dir.bell.exists():  # removed by the script, so that nobody can notify
            with suppress(UnreadableError):  # the wish that is known stands
                self._intent = self._read_intent()
        if events.signals:
            self._terminated = True
        return Ending.DRAIN if self._terminated else _ENDINGS.get(self._intent.intent)

    def _read_intent(self) -> RunIntent:
        return _read(self._run_dir.intent, RunIntent.from_json)


def _visible_gpus() -> list[str]:
    """The job's own GPUs, as the server has named them."""
    return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]


def _read(path: Path, from_json: Callable[[Any], T]) -> T:
    try:
        return from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UnreadableError(f"{path} is not what the server writes there: {error!r}") from error
