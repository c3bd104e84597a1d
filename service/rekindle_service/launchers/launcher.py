"""What the reconciler needs of whatever starts keepers: this machine (``keeper_pool``) or Slurm (``slurm``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rekindle_service.store.tables import Job


@dataclass(frozen=True, slots=True)
class LauncherReport:
    """What a launcher knows of a job apart from whether its keeper runs."""

    waiting_for: str | None = None  # why the keeper has not started yet, in plain words
    queued_again: bool = False  # its keeper had started, and does not run now
    withdrawn: str | None = None  # a person has ended the keeper there: it must not be launched again unasked
    columns: dict[str, Any] | None = None  # ``slurm`` of the job's row


class Launcher(Protocol):
    """Starts keepers, finds them again, stops them. Whether to do so is decided elsewhere.

    One thread at a time may call it for one job. Nothing waits for another machine, but files may not answer.
    """

    def observe(self, jobs: Sequence[Job]) -> None:
        """Look after exactly these jobs, all of this launcher, from now on; whatever it costs, it is once for all."""

    def alive(self, job: Job) -> bool | None:
        """Whether a keeper of the job runs, or is about to by itself; None where that cannot be known now."""

    def report(self, job: Job) -> LauncherReport: ...

    def seconds_ahead(self, job: Job) -> float:
        """How far the times in the keeper's journal are ahead of this machine's clock."""

    def crash_looping(self, job: Job) -> bool:
        """Count the end of the job's keeper; True where it ends again and again without progress.

        Precondition: it is not alive, and ``job`` is as its journal says. Raises OSError where the machine is to
        blame.
        """

    def failure(self, job: Job) -> tuple[str, str]:
        """Why the keeper cannot start, as one sentence, and the end of its log. After ``crash_looping`` was True."""

    def launch(self, job: Job) -> None:
        """Start the keeper unless it is too early to try again. Precondition: it is not alive. Raises OSError."""

    def stop(self, job: Job) -> None:
        """End the keeper with SIGTERM, later with SIGKILL. Nothing happens where there is none. May be repeated."""

    def detach(self) -> None:
        """The server ends; keepers outlive it."""
