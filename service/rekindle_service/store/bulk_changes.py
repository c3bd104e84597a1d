"""The same change of many jobs, in few transactions: each of them lasts a moment, since all others wait for it."""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlmodel import Session, col, select

from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.store.mutations import check_way, move, record, set_columns, versioned
from rekindle_service.store.tables import Job

JOBS_AT_ONCE = 200
"""Jobs in one transaction."""


class BulkChanges:
    """Part of ``Store``. After a crash, or a StorageError, the first jobs are changed and the others are not."""

    def __init__(self, changing_queue: Callable[[], AbstractContextManager[Session]]) -> None:
        self._changing_queue = changing_queue

    def transition(
        self, job_ids: Sequence[str], to: JobState, *, expected: Collection[JobState], reason: str, **changes: Any
    ) -> None:
        """As ``Store.transition`` for each job. Raises ValueError as it does."""
        check_way(expected, to)

        def change(session: Session, jobs: Sequence[Job]) -> None:
            now = time.time()
            for version, job in versioned(session, [job for job in jobs if job.state in expected]):
                set_columns(job, changes)
                move(session, job, to, reason, now, version=version)

        self._change(job_ids, change)

    def set_intent(self, job_ids: Sequence[str], intent: JobIntent) -> None:
        """As ``Store.set_intent`` for each job that has not ended."""

        def change(session: Session, jobs: Sequence[Job]) -> None:
            changed = [job for job in jobs if job.state not in TERMINAL and job.intent != intent]
            for version, job in versioned(session, changed):
                job.intent = intent
                job.version = record(session, job, "intent", reason=f"{intent} wanted", version=version)

        self._change(job_ids, change)

    def _change(self, job_ids: Sequence[str], change: Callable[[Session, Sequence[Job]], None]) -> None:
        """``change`` gets the jobs part by part in the order of ``job_ids``, without those that are gone."""
        for start in range(0, len(job_ids), JOBS_AT_ONCE):
            part = job_ids[start : start + JOBS_AT_ONCE]
            with self._changing_queue() as session:
                rows = {job.id: job for job in session.exec(select(Job).where(col(Job.id).in_(part)))}
                change(session, [rows[job_id] for job_id in part if job_id in rows])
