"""How far the copies of a job have come: written by its copier, where no job can change it."""

from dataclasses import dataclass, field
from datetime import datetime

from rekindle.contract.run_dir.json_records import Amount, Count, JsonRecord, Line, read_record
from rekindle_service.config.home import Home

FAILING = "Nothing is mirrored"
"""Begins the notice of a job whose copies fail."""


@dataclass(frozen=True, slots=True)
class MirrorState(JsonRecord):
    """``Home.mirror`` of a job as JSON."""

    url: Line  # of the copies of this job alone
    steps: list[int] = field(default_factory=list)  # snapshots that are whole there, read back
    journal: Count = 0  # bytes of the journal up to the end of a run of which everything is there; 0 while one runs
    error: Line | None = None  # why nothing is mirrored
    since: Amount | None = None  # seconds since the epoch: since when

    def reaches(self, end: int) -> bool:
        """Whether a run has ended, and everything up to ``end`` bytes of the journal is off the box."""
        return self.error is None and self.journal >= end

    @property
    def notice(self) -> str | None:
        """The sentence for people; None where all is well."""
        if self.error is None or self.since is None:
            return None
        begin = datetime.fromtimestamp(self.since).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        return f"{FAILING} to {self.url} since {begin}: {self.error}"


def read_state(home: Home, job_id: str) -> MirrorState | None:
    """None before the first copy, and for a job without a mirror."""
    return read_record(home.mirror(job_id), MirrorState)
