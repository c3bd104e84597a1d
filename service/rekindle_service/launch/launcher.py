"""``Launcher``: the interface of what starts keepers, whether on this machine or elsewhere, and the facts about it."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from rekindle.contract.backoff import exponential_backoff
from rekindle.contract.files import last_line_of
from rekindle.contract.job import JobSpec
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings
from rekindle_service.launch.isolation.job_isolation import Isolation
from rekindle_service.launch.placement import Placement
from rekindle_service.machine.slots import Machine
from rekindle_service.store import Store
from rekindle_service.store.tables import Job
from rekindle_service.submission import FieldError, Submission

_MAX_STARTUP_FAILURES = 3  # in a row without a single journal record: such a keeper cannot start
_MAX_DEATHS = 10  # in a row without all ranks running once
_MAX_DELAY = 60  # seconds
_MAX_LINE = 300  # characters of the last line of a log that an outcome quotes


class KeeperProcess(Protocol):
    """A keeper that this server has started."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """None while it runs."""

    def terminate(self) -> None: ...


KeeperStarter = Callable[[Job], KeeperProcess]
"""Starts the keeper of a job on this machine; its run directory and intent are in place. Raises OSError."""


class Interpreters(Protocol):
    """Which interpreters of this machine can run jobs."""

    def default(self) -> str:
        """The interpreter of a job that names none."""

    def errors(self, python: str) -> list[FieldError]:
        """What is wrong with one, and with those that come before it where none is named."""


@dataclass(frozen=True, slots=True)
class LauncherParts:
    """The parts of a server from which a launcher is made."""

    store: Store
    home: Home
    settings: Settings
    machine: Machine
    isolation: Isolation
    worker_path: Path
    start_keeper: KeeperStarter
    interpreters: Interpreters


@dataclass(frozen=True, slots=True)
class LauncherReport:
    """What a launcher knows of a job apart from whether its keeper runs."""

    waiting_for: str | None = None  # why the keeper has not started yet, in plain words
    queued_again: bool = False  # its keeper had started, and does not run now
    withdrawn: str | None = None  # a person has ended the keeper there: it must not be launched again unasked
    columns: dict[str, Any] | None = None  # of the job's row, to be shown together with ``waiting_for``


class Launcher(ABC):
    """Starts keepers, finds them again, stops them. Whether to do so is decided elsewhere.

    The spec of a job determines its launcher (``registry.launcher_of``): nobody asks of what kind one is, but calls its
    methods and reads its facts. One thread at a time may call it for one job. Nothing waits for another machine, but
    files may not answer.
    """

    name: ClassVar[str]
    """Shown where a queued job would name its device, if its jobs take no slots."""
    title: ClassVar[str]
    """Name in sentences."""
    takes_slots: ClassVar[bool] = True
    """Whether its jobs hold devices of this machine: queue, quotas and preemption are about those that do."""
    is_remote: ClassVar[bool] = False
    """Whether keepers and ranks run on other machines.

    Then their pids mean nothing here, requests reach them through files, and none is started only to end a job.
    """

    @classmethod
    @abstractmethod
    def claims(cls, spec: JobSpec) -> bool:
        """Whether jobs with this spec are its jobs, for good."""

    @classmethod
    @abstractmethod
    def create(cls, parts: LauncherParts) -> Self:
        """Make the launcher of a server. Raises OSError where the home cannot be written."""

    # --- at submit

    @abstractmethod
    def place(self, submission: Submission) -> Placement:
        """Decide how the job is started and on which devices, where its request leaves that open."""

    @abstractmethod
    def validate(self, spec: JobSpec) -> list[FieldError]:
        """The rules of this launcher that a placed job violates."""

    def fill_in(self, submission: Submission) -> Submission:
        """The submission with what this launcher alone can fill in."""
        return submission

    def obstacle(self) -> str | None:
        """What its queued jobs wait for, as the end of a sentence; None where they can be launched."""
        return None

    # --- of jobs that have left the queue

    @abstractmethod
    def observe(self, jobs: Sequence[Job]) -> None:
        """Look after exactly these jobs, all of this launcher, from now on; whatever it costs, it is once for all."""

    @abstractmethod
    def alive(self, job: Job) -> bool | None:
        """Whether a keeper of the job runs, or is about to by itself; None where that cannot be known now."""

    def report(self, job: Job) -> LauncherReport:
        """What is to be shown of the job."""
        return LauncherReport()

    def seconds_ahead(self, job: Job) -> float:
        """How far the times in the keeper's journal are ahead of this machine's clock."""
        return 0.0

    def why_lost(self, job: Job) -> str:
        """Why a running job has no keeper any more, as far as it is known."""
        return "the keeper was lost; relaunching it"

    @abstractmethod
    def crash_looping(self, job: Job) -> bool:
        """Count the end of the job's keeper; True where it ends again and again without progress.

        Precondition: it is not alive, and ``job`` is as its journal says. Raises OSError where the machine is to
        blame.
        """

    @abstractmethod
    def failure(self, job: Job) -> tuple[str, str]:
        """Why the keeper cannot start, as one sentence, and the end of its log. After ``crash_looping`` was True."""

    @abstractmethod
    def launch(self, job: Job, write_intent: Callable[[Job], None]) -> None:
        """Start the keeper unless it is too early to try again. Precondition: it is not alive. Raises OSError.

        ``write_intent``: to be called before it is started with the row as it then is, since a keeper first reads that.
        """

    @abstractmethod
    def stop(self, job: Job) -> None:
        """End the keeper with SIGTERM, later with SIGKILL. Nothing happens where there is none. May be repeated."""

    on_end: Callable[[], None] = staticmethod(lambda: None)
    """Called, in another thread, when a keeper has ended, if that is noticed; set before the first launch."""

    @abstractmethod
    def detach(self) -> None:
        """The server ends; keepers outlive it."""


@dataclass(slots=True)
class LaunchCounts:
    """How often the keepers of a job have ended, one after the other, and when the next one may be launched."""

    run: int
    journal_offset: int  # of the job's row at the launch
    deaths: int = 0  # in a row, up to this launch
    startup_failures: int = 0  # the last of them, in a row
    host_failures: int = 0  # in a row: launches that failed because of the machine or the cluster, not the job
    counted: bool = False  # whether the end of this one is counted above
    next_at: float = 0.0  # time.monotonic() before which it is not launched again

    @property
    def too_early(self) -> bool:
        return time.monotonic() < self.next_at

    @property
    def crash_looping(self) -> bool:
        return self.startup_failures >= _MAX_STARTUP_FAILURES or self.deaths >= _MAX_DEATHS

    def count_end(self, job: Job, check_host: Callable[[], None] = lambda: None) -> None:
        """Once per launch. It is not the job's fault where ``check_host`` raises OSError, which is passed on."""
        if self.counted:
            return
        self.counted = True
        self.count_host_failure()
        check_host()
        self.host_failures = 0
        self.deaths = 1 if job.state is JobState.RUNNING else self.deaths + 1
        self.startup_failures = self.startup_failures + 1 if self.journal_offset == job.journal_offset else 0
        self.next_at = time.monotonic() + _delay(self.deaths - 1)  # the first is followed at once

    def count_host_failure(self) -> None:
        """A launch that failed although nothing is wrong with the job."""
        self.counted = True
        self.host_failures += 1
        self.next_at = time.monotonic() + _delay(self.host_failures)


def _delay(failures: int) -> float:
    """Seconds: 1, 2, 4 … 60."""
    return exponential_backoff(failures, first=1.0, maximum=_MAX_DELAY)


def keeper_failure(keeper: str, tail: str, log: Path) -> str:
    """Why a job has no keeper, with the last line of its log, whose end is ``tail``."""
    last = last_line_of(tail)
    said = f": {last[:_MAX_LINE]}" if last else ""
    return f"{keeper} could not start or ended at once, repeatedly{said}; see {log}"
