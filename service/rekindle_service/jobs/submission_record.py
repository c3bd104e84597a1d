"""What makes the row of a submitted job, kept in its run directory, whose name is the confirmation of the submission.

A run directory is built under another name (``Home.new_run``), its row is committed, then it is renamed. So one that
has its name was submitted: where it has no row, the database is an older one or was lost. One that does not have its
name yet was confirmed to nobody, unless it has a row: then it only lacks the name.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rekindle.contract.files import fsync_directory
from rekindle.contract.run_dir.json_records import Amount, Count, JsonRecord
from rekindle_service.config.home import Home
from rekindle_service.store.tables import Job

_KEY = "submission"  # in spec.json


@dataclass(frozen=True, slots=True)
class SubmissionRecord(JsonRecord):
    """Columns of a job that only its row would have otherwise. A job may have overwritten them."""

    number: Count
    created_at: Amount
    owner: str | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    experiment_id: str | None = None
    trial: dict[str, Any] = field(default_factory=dict)
    run_after: str | None = None
    parallel: int | None = None


def stored_spec(job: Job) -> dict[str, Any]:
    """What ``spec.json`` holds: the spec, and its submission."""
    columns = {each.name: getattr(job, each.name) for each in fields(SubmissionRecord)}
    return {**job.spec.to_json(), "job_id": job.id, _KEY: asdict(SubmissionRecord(**columns))}


def read_submission(stored: dict[str, Any]) -> SubmissionRecord | None:
    """The submission in a ``spec.json``; None where it is not what we wrote."""
    try:
        return SubmissionRecord.from_json(stored.get(_KEY))
    except ValueError:
        return None


def confirm_runs(home: Home, job_ids: Iterable[str]) -> None:
    """Rename the directories of jobs whose rows are committed, durably. Raises OSError."""
    for job_id in job_ids:
        new = home.new_run(job_id).root
        if new.exists():
            new.rename(home.run_dir(job_id).root)
    fsync_directory(home.runs)
