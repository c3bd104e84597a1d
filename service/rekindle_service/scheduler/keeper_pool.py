"""Keepers: which jobs have a live one, and when a lost one is launched again."""

import errno
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rekindle.contract.backoff import exponential_backoff
from rekindle.contract.files import check_free_space
from rekindle.contract.locks import lock_holder
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.store.tables import Job

Launcher = Callable[[Job], "subprocess.Popen[bytes]"]
"""Starts the keeper of a job whose run directory and intent are in place. Raises OSError."""

_MAX_STARTUP_FAILURES = 3  # in a row without a single journal record: such a keeper cannot start
_MAX_DEATHS = 10  # in a row without all ranks running once
_MAX_DELAY = 60  # seconds
TRANSIENT_ERRNOS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO),  # the disk
        *(errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE),  # processes, memory, open files
    }
)
"""What this machine lacks now and may have later: no job fails for it."""


@dataclass(slots=True)
class _Launch:
    """The latest keeper that this server has started for a job."""

    run: int
    process: "subprocess.Popen[bytes] | None"  # None: it could not even be started
    journal_offset: int  # of the job's row at the launch
    deaths: int = 0  # in a row, up to this launch
    startup_failures: int = 0  # the last of them, in a row
    host_failures: int = 0  # in a row: launches that failed because of this machine, not the job
    counted: bool = False  # whether the end of this one is counted above
    next_at: float = 0.0  # time.monotonic() before which it is not launched again


class KeeperPool:
    """One thread at a time may call it for one job. A keeper of an earlier server is found by its lock."""

    def __init__(self, home: Home, launch: Launcher) -> None:
        self._home = home
        self._launch = launch
        self._launches: dict[str, _Launch] = {}

    def alive(self, job: Job) -> bool:
        """Whether any keeper of the job runs: one that we started, even before it has its lock, or one that owns it."""
        launch = self._launches.get(job.id)
        if launch is not None and launch.process is not None and launch.process.poll() is None:
            return True
        return lock_holder(self._home.run_dir(job.id).keeper_lock) is not None

    def crash_looping(self, job: Job) -> bool:
        """Count the death of the job's keeper, if ours; True when it dies again and again without progress.

        A death is not the job's fault while nothing can be written into its directory: then OSError is raised, once
        per launch. Precondition: it is not alive, and ``job`` is as its journal says.
        """
        launch = self._launches.get(job.id)
        if launch is None or launch.run != job.run:
            return False
        if not launch.counted:
            launch.counted = True
            self._count(launch, job)
        return launch.startup_failures >= _MAX_STARTUP_FAILURES or launch.deaths >= _MAX_DEATHS

    def _count(self, launch: _Launch, job: Job) -> None:
        launch.host_failures += 1
        launch.next_at = time.monotonic() + _delay(launch.host_failures)
        _check_host(self._home.run_dir(job.id).root)
        launch.host_failures = 0
        launch.deaths = 1 if job.state is JobState.RUNNING else launch.deaths + 1
        launch.startup_failures = launch.startup_failures + 1 if launch.journal_offset == job.journal_offset else 0
        launch.next_at = time.monotonic() + _delay(launch.deaths - 1)  # the first is followed at once

    def launch(self, job: Job) -> None:
        """Start the keeper unless it is too early to try again. Precondition: it is not alive. Raises OSError."""
        last = self._launches.get(job.id)
        if last is None or last.run != job.run:
            last = _Launch(job.run, None, job.journal_offset)
        if time.monotonic() < last.next_at:
            return
        following = replace(last, process=None, journal_offset=job.journal_offset, counted=False)
        self._launches[job.id] = following
        try:
            following.process = self._launch(job)
        except OSError as error:
            if error.errno in TRANSIENT_ERRNOS:
                following.counted = True
                following.host_failures += 1
                following.next_at = time.monotonic() + _delay(following.host_failures)
            raise

    def reap(self, holding: set[str]) -> None:
        """Collect ended keepers of jobs that hold no slots any more, so that none stays a zombie."""
        for job_id in [one for one in list(self._launches) if one not in holding]:
            process = self._launches[job_id].process
            if process is None or process.poll() is not None:
                del self._launches[job_id]

    def detach(self) -> None:
        """Forget all keepers: they outlive this server on purpose."""
        for launch in list(self._launches.values()):
            if launch.process is not None and launch.process.poll() is None:
                launch.process.returncode = 0  # else its destructor would warn of a forgotten child
        self._launches.clear()


def _check_host(run_dir: Path) -> None:
    """Raises OSError where the machine, not the directory, prevents a small file from being written there."""
    try:
        check_free_space(run_dir)
    except OSError as error:
        if error.errno in TRANSIENT_ERRNOS:
            raise


def _delay(failures: int) -> float:
    """Seconds: 1, 2, 4 … 60."""
    return exponential_backoff(failures, first=1.0, maximum=_MAX_DELAY)
