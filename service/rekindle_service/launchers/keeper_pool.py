"""Keepers on this machine: which jobs have a live one, and when a lost one is launched again."""

import errno
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rekindle.contract.files import check_free_space, last_line_of
from rekindle.contract.locks import lock_holder
from rekindle.contract.safe_open import read_end
from rekindle_service.config.home import Home
from rekindle_service.launchers.launch_counts import LaunchCounts
from rekindle_service.launchers.launcher import LauncherReport
from rekindle_service.launchers.process_ends import ProcessEnds
from rekindle_service.launchers.spare_process import KeeperProcess
from rekindle_service.store.tables import Job

KeeperStarter = Callable[[Job], KeeperProcess]
"""Starts the keeper of a job whose run directory and intent are in place. Raises OSError."""

_EVIDENCE_BYTES = 4000  # of the end of a keeper's log
_MAX_LINE = 300  # characters of its last line that the outcome quotes
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

    counts: LaunchCounts
    process: KeeperProcess | None = None  # None: it could not even be started


class KeeperPool:
    """One thread at a time may call it for one job. A keeper of an earlier server is found by its lock."""

    def __init__(self, home: Home, launch: KeeperStarter, on_end: Callable[[], None] = lambda: None) -> None:
        """``on_end`` is called, in another thread, when a keeper has ended."""
        self._home = home
        self._launch = launch
        self._ends = ProcessEnds(on_end)
        self._launches: dict[str, _Launch] = {}

    def alive(self, job: Job) -> bool:
        """Whether any keeper of the job runs: one that we started, even before it has its lock, or one that owns it."""
        launch = self._launches.get(job.id)
        if launch is not None and launch.process is not None and launch.process.poll() is None:
            return True
        holder = lock_holder(self._home.run_dir(job.id).keeper_lock)
        if holder is not None:
            self._ends.watch(holder)
        return holder is not None

    def report(self, job: Job) -> LauncherReport:  # of the interface
        return LauncherReport()

    def seconds_ahead(self, job: Job) -> float:  # of the interface
        return 0.0

    def crash_looping(self, job: Job) -> bool:
        """A death is not the job's fault while nothing can be written into its directory: then OSError is raised."""
        launch = self._launches.get(job.id)
        if launch is None or launch.counts.run != job.run:
            return False
        launch.counts.count_end(job, partial(_check_host, self._home.run_dir(job.id).root))
        return launch.counts.crash_looping

    def failure(self, job: Job) -> tuple[str, str]:
        log = self._home.run_dir(job.id).keeper_log
        tail = read_end(log, _EVIDENCE_BYTES)
        return keeper_failure("The keeper", tail, log), tail

    def launch(self, job: Job) -> None:
        last = self._launches.get(job.id)
        if last is None or last.counts.run != job.run:
            last = _Launch(LaunchCounts(job.run, job.journal_offset))
        if last.counts.too_early:
            return
        following = _Launch(replace(last.counts, journal_offset=job.journal_offset, counted=False))
        self._launches[job.id] = following
        try:
            following.process = self._launch(job)
            self._ends.watch(following.process.pid)
        except OSError as error:
            if error.errno in TRANSIENT_ERRNOS:
                following.counts.count_host_failure()
            raise

    def stop(self, job: Job) -> None:
        """With SIGTERM alone: a keeper that receives it drains the job and leaves it to the next one."""
        launch = self._launches.get(job.id)
        if launch is not None and launch.process is not None:
            launch.process.terminate()
            return
        if (pid := lock_holder(self._home.run_dir(job.id).keeper_lock)) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def observe(self, jobs: Sequence[Job]) -> None:
        """Collect ended keepers of jobs that hold no slots any more, so that none stays a zombie."""
        holding = {job.id for job in jobs}
        for job_id in [one for one in list(self._launches) if one not in holding]:
            process = self._launches[job_id].process
            if process is None or process.poll() is not None:
                del self._launches[job_id]

    def detach(self) -> None:
        """Forget all keepers: they outlive this server on purpose."""
        for launch in list(self._launches.values()):
            if isinstance(launch.process, subprocess.Popen) and launch.process.poll() is None:
                launch.process.returncode = 0  # else its destructor would warn of a forgotten child
        self._launches.clear()
        self._ends.close()


def keeper_failure(keeper: str, tail: str, log: Path) -> str:
    """Why a job has no keeper, with the last line of its log, whose end is ``tail``."""
    last = last_line_of(tail)
    said = f": {last[:_MAX_LINE]}" if last else ""
    return f"{keeper} could not start or ended at once, repeatedly{said}; see {log}"


def _check_host(run_dir: Path) -> None:
    """Raises OSError where the machine, not the directory, prevents a small file from being written there."""
    try:
        check_free_space(run_dir)
    except OSError as error:
        if error.errno in TRANSIENT_ERRNOS:
            raise
