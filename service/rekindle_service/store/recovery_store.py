"""``RecoveryStore``: rows that are made again from run directories, and submissions that are undone."""

from collections.abc import Sequence

from sqlmodel import Session, col, delete, func, select, update

from rekindle.contract.job import RunIntent
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.store.mutations import by_key, last_value, next_value, record
from rekindle_service.store.sqlite import StorePart
from rekindle_service.store.tables import NEW_SLURM_LAUNCH, Counter, Event, Experiment, Job
from rekindle_service.store.totals import forget_attempts


class RecoveryStore(StorePart):
    """Part of ``Store``. Used when a server starts, before anything else uses the database."""

    def known_jobs(self) -> dict[str, int]:
        """The run of every row, by the id of the job."""
        with self._database.reading() as session:
            return dict(session.exec(select(Job.id, Job.run)).all())

    def deleted_jobs(self) -> set[str]:
        with self._database.reading() as session:
            return set(session.exec(select(Event.job_id).where(Event.kind == "deleted")))

    def experiment_ids(self) -> set[str]:
        with self._database.reading() as session:
            return set(session.exec(select(Experiment.id)))

    def add_job(self, job: Job, reason: str) -> None:
        """Insert a row made from a run directory, with its own number and key unless another job has them."""
        with self._database.writing() as session:
            _number(session, Job, job, "number")
            if by_key(session, Job, job.idempotency_key) is not None:
                job.idempotency_key = None
            job.version = record(session, job, "submitted", to_state=job.state, reason=reason)
            session.add(job)

    def add_experiment(self, experiment: Experiment) -> None:
        """Insert the row of an experiment whose jobs are to follow."""
        with self._database.writing() as session:
            _number(session, Experiment, experiment, "experiment")
            if by_key(session, Experiment, experiment.idempotency_key) is not None:
                experiment.idempotency_key = None
            session.add(experiment)

    def restart_from_journal(self, job_id: str, intent: RunIntent, reason: str) -> None:
        """Make the row of a job what it was when ``intent`` was written, for the journal to be read from its beginning.

        The only other place than ``mutations.move`` that writes ``state``: the row is older than the run directory, so
        that no transition leads from what it says to what has happened.
        """
        with self._database.writing() as session:
            job = session.get_one(Job, job_id)
            before = job.state
            forget_attempts(session, job_id)
            job.state, job.intent, job.run = JobState.STARTING, intent.intent, intent.run
            job.devices, job.max_failures = intent.devices, intent.max_failures
            job.launch_number = intent.launch
            job.slurm = dict(NEW_SLURM_LAUNCH) if intent.launch else None
            job.journal_offset = job.attempt = job.restarts = 0
            job.last_keeper = {}
            job.outcome = job.ended_at = job.next_try_at = job.queue_position = job.waiting_for = None
            job.started_at, job.notice = job.started_at or job.created_at, reason
            job.version = record(session, job, "state", from_state=before, to_state=job.state, reason=reason)

    def hold(self, job_id: str, reason: str) -> None:
        """Show ``reason`` on a job, and keep it from being started if it is queued."""
        with self._database.writing() as session:
            job = session.get_one(Job, job_id)
            if job.state is JobState.QUEUED and job.intent is JobIntent.RUN:
                job.intent = JobIntent.HOLD
            if job.notice != reason:
                job.notice = reason
                job.version = record(session, job, "changed", reason=reason)

    def withdraw(self, job_ids: Sequence[str]) -> None:
        """Remove the rows of jobs that were confirmed to nobody, with their experiment."""
        chosen = col(Job.id).in_(job_ids)
        with self._database.writing() as session:
            experiments = set(session.exec(select(Job.experiment_id).where(chosen)))
            session.execute(delete(Event).where(col(Event.job_id).in_(job_ids)))
            for job in session.exec(select(Job).where(chosen)):
                forget_attempts(session, job.id)
                session.delete(job)
            session.flush()
            session.execute(delete(Experiment).where(col(Experiment.id).in_(experiments - {None})))

    def skip_versions(self, count: int) -> None:
        """Let clients that have seen later versions than this database knows receive what changes from now on."""
        with self._database.writing() as session:
            value = col(Counter.value) + count
            session.execute(update(Counter).where(col(Counter.name) == "version").values(value=value))


def _number(session: Session, table: type[Job] | type[Experiment], row: Job | Experiment, counter: str) -> None:
    """Keep the row's number where it is free, and never give it to another; else the next one."""
    taken = session.exec(select(func.count()).select_from(table).where(table.number == row.number)).one()
    if row.number < 1 or taken:
        row.number = next_value(session, counter)
    elif row.number > last_value(session, counter):
        session.execute(update(Counter).where(col(Counter.name) == counter).values(value=row.number))
