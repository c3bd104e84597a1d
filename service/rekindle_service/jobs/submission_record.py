"""What is recorded of a submission: what makes its row again, and the key that makes its repeats one.

The record is kept in the run directory, whose name is the confirmation of the submission. A run directory is built
under another name (``Home.new_run``), its row is committed, then it is renamed. So one that has its name was submitted:
where it has no row, the database is an older one or was lost. One that does not have its name yet was confirmed to
nobody, unless it has a row: then it only lacks the name.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rekindle.contract.files import fsync_directory
from rekindle.contract.run_dir.json_records import Amount, Count, JsonRecord
from rekindle_service.config.home import Home
from rekindle_service.store.tables import Job, Row
from rekindle_service.submission import BusyError, FieldError, SubmissionError

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


_MAX_WAITING = 8
_MAX_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key that a client gave its request, and the digest of that request."""

    value: str
    request_digest: str

    def check(self, known: Row) -> Row:
        """``known``, which a request with this key has made. Raises SubmissionError if it was another request."""
        if known.request_digest != self.request_digest:
            kind = "job" if isinstance(known, Job) else "experiment"
            rule = f"was used for another request, which made {kind} {known.id}"
            hint = "a repeat must have the same body; a new request needs a key of its own"
            raise SubmissionError([FieldError("Idempotency-Key", rule, self.value, hint)])
        return known


class IdempotencyLocks:
    """Requests with the same idempotency key are processed one at a time: a repeat waits for the first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._in_flight: set[str] = set()
        self._waiting = 0

    @contextmanager
    def lock(self, key: IdempotencyKey | None) -> Iterator[None]:
        """Wait until no other request with ``key`` is in flight; without a key there is nothing to wait for.

        Raises BusyError where that takes too long, or too many others wait: each of them occupies a thread.
        """
        if key is None:
            yield
            return
        self._enter(key.value)
        try:
            yield
        finally:
            with self._changed:
                self._in_flight.remove(key.value)
                self._changed.notify_all()

    def _enter(self, key: str) -> None:
        with self._changed:
            if key in self._in_flight:
                self._waiting += 1
                try:
                    is_free = self._waiting <= _MAX_WAITING and self._changed.wait_for(
                        lambda: key not in self._in_flight, _MAX_WAIT_SECONDS
                    )
                finally:
                    self._waiting -= 1
                if not is_free:
                    raise BusyError(f"the first request with the Idempotency-Key {key!r} is still being processed")
            self._in_flight.add(key)
