"""``ExperimentStore``: the experiments and which jobs belong to them."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager

from sqlmodel import Session, col, func, select

from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, JobIntent, JobState
from rekindle_service.store.attempt_rows import read_summaries
from rekindle_service.store.job_queries import Lookup
from rekindle_service.store.mutations import JOBS_AT_ONCE, by_key, forget, insert, next_value, record, versioned
from rekindle_service.store.queue_store import NO_LIMIT, QueueRoom
from rekindle_service.store.sqlite import Database
from rekindle_service.store.tables import Attempt, Experiment, Job


class ExperimentStore:
    """Thread-safe, as the ``Store`` that it is a part of; ``changing_queue`` is that one's way to add jobs."""

    def __init__(self, database: Database, changing_queue: Callable[[], AbstractContextManager[Session]]) -> None:
        self._database = database
        self.lookup = Lookup(database, Experiment)
        self._changing_queue = changing_queue

    def reserve_number(self) -> int:
        """The next number, which no other experiment gets."""
        with self._database.writing() as session:
            return next_value(session, "experiment")

    def add(
        self,
        experiment: Experiment,
        jobs: Sequence[Job],
        idempotency_key: str | None = None,
        *,
        numbered: bool = False,
        room: QueueRoom = NO_LIMIT,
    ) -> Experiment:
        """Insert the experiment with all its jobs, or nothing. ``numbered``: see ``Store.add_job``.

        A key that was used before returns the experiment that it created then. Raises QueueFullError.
        """
        with self._changing_queue() as session:
            known = by_key(session, Experiment, idempotency_key)
            if known is not None:
                return known
            room.require(session, len(jobs))
            if not numbered:
                experiment.number = next_value(session, "experiment")
            experiment.idempotency_key = idempotency_key
            session.add(experiment)
            session.flush()  # before the jobs, which refer to it
            insert(session, jobs, numbered=numbered)
            return experiment

    def by_key(self, idempotency_key: str | None) -> Experiment | None:
        with self._database.reading() as session:
            return by_key(session, Experiment, idempotency_key)

    def get(self, experiment_id: str) -> Experiment | None:
        with self._database.reading() as session:
            return session.get(Experiment, experiment_id)

    def page(
        self, limit: int, before: int | None = None, name: str | None = None, readable_by: str | None = None
    ) -> list[Experiment]:
        """Latest first; ``before`` is the ``number`` of the last experiment of the page before.

        ``readable_by``: only experiments of this owner (``access.permissions.Permissions``).
        """
        query = select(Experiment).order_by(col(Experiment.number).desc()).limit(limit)
        if before is not None:
            query = query.where(col(Experiment.number) < before)
        if name is not None:
            query = query.where(Experiment.name == name)
        if readable_by is not None:
            query = query.where(Experiment.owner == readable_by)
        return self._database.rows(query)

    def states(self, experiment_ids: Collection[str]) -> dict[str, dict[JobState, int]]:
        """By experiment: how many of its jobs are in which state."""
        found: dict[str, dict[JobState, int]] = {each: {} for each in experiment_ids}
        counts = select(Job.experiment_id, Job.state, func.count()).where(col(Job.experiment_id).in_(experiment_ids))
        with self._database.reading() as session:
            for experiment_id, state, count in session.exec(counts.group_by(col(Job.experiment_id), col(Job.state))):
                found[str(experiment_id)][JobState(state)] = count
        return found

    def jobs(self, experiment_id: str) -> list[Job]:
        """The jobs that were not deleted, in the order of the experiment."""
        query = select(Job).where(Job.experiment_id == experiment_id).order_by(col(Job.number))
        return self._database.rows(query)

    def attempts(self, experiment_id: str) -> dict[str, list[AttemptSummary]]:
        """List the attempts of its jobs, by job, oldest first."""
        jobs = select(Job.id).where(Job.experiment_id == experiment_id)
        found: dict[str, list[AttemptSummary]] = {}
        with self._database.reading() as session:
            for job_id, attempt in read_summaries(session, col(Attempt.job_id).in_(jobs)):
                found.setdefault(job_id, []).append(attempt)
        return found

    def prune(self, job_id: str, reason: str) -> Job | None:
        """Drain a trial that holds slots. None, and nothing has changed: it was pruned before, or a person decided."""
        with self._changing_queue() as session:
            job = session.get(Job, job_id)
            if (
                job is None
                or job.state not in HOLDING_SLOTS
                or job.intent is not JobIntent.RUN
                or "pruned" in job.trial
            ):
                return None
            job.trial, job.intent = {**job.trial, "pruned": reason}, JobIntent.DRAIN
            job.version = record(session, job, "intent", reason=reason)
            return job

    def delete(self, experiment_id: str) -> bool:
        """Forget an experiment with all its jobs. False, and nothing is deleted: one of them has not ended.

        Many jobs are deleted in several transactions, since all others wait for each of them. After a crash in between
        there is an experiment with fewer jobs, which can be deleted again.
        """
        active = select(Job.id).where(Job.experiment_id == experiment_id, col(Job.state).not_in(TERMINAL)).limit(1)
        some = select(Job).where(Job.experiment_id == experiment_id).order_by(col(Job.number)).limit(JOBS_AT_ONCE)
        while True:
            with self._changing_queue() as session:
                if session.exec(active).first() is not None:
                    return False
                jobs = session.exec(some).all()
                for version, job in versioned(session, jobs):
                    forget(session, job, version=version)
                session.flush()  # before the experiment, which they refer to
                if len(jobs) < JOBS_AT_ONCE:
                    experiment = session.get(Experiment, experiment_id)
                    if experiment is not None:
                        session.delete(experiment)
                    return True
