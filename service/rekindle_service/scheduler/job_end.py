"""The end of a run of which no keeper is there to end it: the server writes it into the row itself."""

import time
from collections.abc import Sequence
from typing import Any

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.retention.deletions import free_memory
from rekindle_service.store import Store
from rekindle_service.store.tables import Job


class JobEnd:
    """Nothing happens to a job whose state has changed meanwhile. All raise StorageError."""

    def __init__(self, store: Store, home: Home) -> None:
        self._store, self._home = store, home

    def fail(self, job: Job, message: str, log: str) -> None:
        """Its keeper cannot be started; ``log``: the end of the keeper's log."""
        outcome = Outcome(OutcomeClass.LAUNCH_ERROR, message, retryable=False, evidence={"keeper_log": log})
        self._end(job, JobState.FAILED, outcome, f"{OutcomeClass.LAUNCH_ERROR}: {message}")

    def cancel(self, job: Job, message: str, reason: str) -> None:
        """``message`` is that of the outcome, ``reason`` that of the event."""
        outcome = Outcome(OutcomeClass.CANCELLED, message, retryable=False)
        self._end(job, JobState.CANCELLED, outcome, reason)

    def cancel_new(self, jobs: Sequence[Job], message: str, reason: str) -> None:
        """As ``cancel`` for each of many jobs that have never run, and so have nothing outside their directories."""
        outcome = Outcome(OutcomeClass.CANCELLED, message, retryable=False)
        end = _columns(outcome)
        ids = [job.id for job in jobs]
        self._store.transition_all(ids, JobState.CANCELLED, expected={JobState.QUEUED}, reason=reason, **end)

    def requeue_held(self, job: Job, notice: str | None) -> None:
        """Back to the queue, where it waits until it is released."""
        reason = notice or "held while no keeper of it ran"
        outcome = Outcome(OutcomeClass.PREEMPTED, reason, retryable=False).to_json()
        columns: dict[str, Any] = {"intent": JobIntent.HOLD, "notice": notice, "devices": [], "next_try_at": None}
        self._store.transition(job.id, JobState.QUEUED, expected={job.state}, reason=reason, outcome=outcome, **columns)

    def _end(self, job: Job, to: JobState, outcome: Outcome, reason: str) -> None:
        if self._store.transition(job.id, to, expected={job.state}, reason=reason, **_columns(outcome)) is not None:
            free_memory(self._home.run_dir(job.id))


def _columns(outcome: Outcome) -> dict[str, Any]:
    """Of a job that ends now."""
    return {"outcome": outcome.to_json(), "devices": [], "ended_at": time.time()}
