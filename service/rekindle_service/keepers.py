"""Which jobs have a live keeper, and when a lost one is launched again."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from rekindle.contract.locks import lock_holder
from rekindle_service.home import Home
from rekindle_service.rows import Job
from rekindle_service.states import JobState

Launcher = Callable[[Job], "subprocess.Popen[bytes]"]
"""Starts the keeper of a job whose run directory and intent are in place. Raises OSError."""

_SILENT_DEATHS = 3  # in a row without a single journal record: such a keeper never gets anywhere
_DEATHS = 10  # in a row without all ranks running once
_LONGEST_DELAY = 60  # seconds


@dataclass(slots=True)
class _Launch:
    """The latest keeper that this server has started for a job."""

    run: int
    process: "subprocess.Popen[bytes] | None"  # None: it could not even be started
    journal_offset: int  # of the job's row at the launch
    deaths: int = 0  # in a row, up to this launch
    counted: bool = False  # whether the end of this one is in ``deaths``
    next_at: float = 0.0  # time.monotonic() before which it is not launched again


class Keepers:
    """Only the engine's thread may call it. A keeper that an earlier server has left is known by its lock."""

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

    def hopeless(self, job: Job) -> bool:
        """Count the death of the job's keeper, if ours; True when launching it again would be in vain.

        Precondition: it is not alive, and ``job`` is as its journal says.
        """
        launch = self._launches.get(job.id)
        if launch is None or launch.run != job.run:
            return False
        if not launch.counted:
            launch.counted = True
            launch.deaths = 1 if job.state is JobState.RUNNING else launch.deaths + 1
            launch.next_at = time.monotonic() + _delay(launch.deaths)
        silent = launch.journal_offset == job.journal_offset
        return launch.deaths >= (_SILENT_DEATHS if silent else _DEATHS)

    def launch(self, job: Job) -> None:
        """Start the keeper unless it is too early to try again. Precondition: it is not alive."""
        last = self._launches.get(job.id)
        if last is None or last.run != job.run:
            last = _Launch(job.run, None, job.journal_offset)
        if time.monotonic() < last.next_at:
            return
        process: subprocess.Popen[bytes] | None = None
        try:
            process = self._launch(job)
        finally:
            self._launches[job.id] = _Launch(job.run, process, job.journal_offset, last.deaths)

    def reap(self, holding: set[str]) -> None:
        """Collect ended keepers of jobs that hold no slots any more, so that none stays a zombie."""
        for job_id in [one for one in self._launches if one not in holding]:
            process = self._launches[job_id].process
            if process is None or process.poll() is not None:
                del self._launches[job_id]

    def release(self) -> None:
        """Let go of all keepers: they outlive this server on purpose."""
        for launch in self._launches.values():
            if launch.process is not None and launch.process.poll() is None:
                launch.process.returncode = 0  # else its destructor would warn of a forgotten child
        self._launches.clear()


def _delay(deaths: int) -> float:
    """Seconds to wait after so many deaths in a row: 0, 1, 2, 4 … 60."""
    return 0 if deaths < 2 else min(_LONGEST_DELAY, 2 ** (deaths - 2))
