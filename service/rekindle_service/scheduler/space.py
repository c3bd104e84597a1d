"""Which jobs there is no disk space for: the next checkpoint is written before an older one is deleted."""

from rekindle_service.config.home import Home
from rekindle_service.run_readers.stored_snapshots import next_checkpoint_bytes
from rekindle_service.store.tables import Job


class SpaceGate:
    """Which jobs there is no space for now. ``state`` changes when that has to be decided again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._awaited = 0  # bytes: the least that a job was refused for

    @property
    def state(self) -> str | None:
        return self._home.lack_of_space(self._awaited)

    def begin(self) -> None:
        """Before all jobs are asked for."""
        self._awaited = 0

    def lack(self, job: Job) -> str | None:
        """Why this job cannot start; None where there is space, or nothing is known of its checkpoints."""
        if job.attempt == 0 and job.spec.continue_from is None:
            return None
        needed = next_checkpoint_bytes(self._home.run_dir(job.id))
        lack = self._home.lack_of_space(needed) if needed else None
        if lack is not None:
            self._awaited = min(needed, self._awaited or needed)
        return lack
