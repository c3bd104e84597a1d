"""What the scheduler reports to the routes, which do not import it: of itself, and of a job that is not submitted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rekindle_service.store.tables import Job

MAX_AGE = 30.0  # seconds since the latest iteration after which the scheduler counts as stuck


@dataclass(frozen=True, slots=True)
class SchedulerHealth:
    """Whether the loop runs, and what holds it up."""

    alive: bool
    age: float  # seconds since the latest iteration ended
    stuck: dict[str, float] = field(default_factory=dict)  # seconds by id of a job whose files do not answer
    failing: int = 0  # jobs and duties whose latest iteration failed

    def problem(self) -> str | None:
        """Why nothing is scheduled, for a person; None where all is well."""
        if not self.alive:
            return "its thread has ended; see the server's log"
        if self.age > MAX_AGE:
            return f"its latest iteration ended {self.age:.0f} s ago: a disk or the database does not answer"
        return None

    def jobs_problem(self) -> str | None:
        """Jobs that nobody can look after, for a person; the others are not affected."""
        if not self.stuck:
            return None
        slowest = max(self.stuck, key=lambda job_id: self.stuck[job_id])
        return (
            f"the files of {len(self.stuck)} do not answer, first those of {slowest}, for {self.stuck[slowest]:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class Prospect:
    """When a job would start that is stored nowhere, if it were submitted now."""

    devices: Sequence[str] = ()  # that it would get now
    starts_in: float | None = None  # seconds; 0: now, None: nobody knows
    position: int | None = None  # see ``Job.queue_position``
    waiting_for: str | None = None  # likewise
    displaced: Sequence[tuple[Job, str]] = ()  # running jobs: those that would be stopped ("preempt") or "resize"d


class Prediction(NamedTuple):
    """A queued job that probably starts after ``starts_in`` seconds on ``slots``, for ``seconds`` (None: unknown)."""

    job: Job
    slots: Sequence[str]
    starts_in: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of the slots: by id, the seconds until running jobs leave them, and what starts then."""

    time_left: Mapping[str, float | None]
    predictions: Sequence[Prediction]
