"""How often the keepers of a job have ended, one after the other, and when the next one may be launched."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from rekindle.contract.backoff import exponential_backoff
from rekindle.contract.states import JobState
from rekindle_service.store.tables import Job

_MAX_STARTUP_FAILURES = 3  # in a row without a single journal record: such a keeper cannot start
_MAX_DEATHS = 10  # in a row without all ranks running once
_MAX_DELAY = 60  # seconds


@dataclass(slots=True)
class LaunchCounts:
    """What is known of the latest launch of a job by this server, and of those before it."""

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
