"""``OverviewStore``: what people look for first. Each question reads the rows of its answer and no others."""

from dataclasses import dataclass

from sqlalchemy import TextClause
from sqlmodel import col, exists, func, select

from rekindle_service.store.database import Database
from rekindle_service.store.job_lists import KEY_COLUMNS, JobKey, read_keys
from rekindle_service.store.tables import DONE, HELD, UNPLACED, UNSEEN_FAILURES, Experiment, Job

_EXPERIMENTS = 50  # latest ones, of which those with ended jobs are chosen


@dataclass(frozen=True, slots=True)
class EndedExperiment:
    """An experiment whose jobs have ended, the last one at ``ended_at`` (seconds since the epoch)."""

    experiment: Experiment
    ended_at: float

    @property
    def id(self) -> str:
        return self.experiment.id


class OverviewStore:
    """Part of ``Store``. ``readable_by``, ``changeable_by``: only jobs of this owner (``access.permissions``)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def failures(self, limit: int, changeable_by: str | None) -> tuple[list[JobKey], int]:
        """Jobs that have failed and that nobody has looked at since, latest first; and how many there are."""
        return self._section(UNSEEN_FAILURES, limit, changeable_by, latest_first=True)

    def held(self, limit: int, changeable_by: str | None) -> tuple[list[JobKey], int]:
        """Queued jobs that start only when they are released, oldest first; and how many there are."""
        return self._section(HELD, limit, changeable_by)

    def failures_of_others(self, limit: int, readable_by: str | None, changeable_by: str | None) -> list[JobKey]:
        """Find failures that somebody may read, and not mark as seen."""
        return self._of_others(UNSEEN_FAILURES, limit, readable_by, changeable_by)

    def held_of_others(self, limit: int, readable_by: str | None, changeable_by: str | None) -> list[JobKey]:
        """Find held jobs that somebody may read, and not release."""
        return self._of_others(HELD, limit, readable_by, changeable_by)

    def _of_others(
        self, condition: TextClause, limit: int, readable_by: str | None, changeable_by: str | None
    ) -> list[JobKey]:
        if changeable_by is None or limit <= 0:
            return []
        others = col(Job.owner).is_distinct_from(changeable_by)
        query = select(*KEY_COLUMNS).where(condition, others).order_by(col(Job.ended_at).desc(), col(Job.number))
        if readable_by is not None:
            query = query.where(Job.owner == readable_by)
        with self._database.reading() as session:
            return read_keys(session, query.limit(limit))

    def unplaced(self, limit: int, readable_by: str | None) -> tuple[list[JobKey], int]:
        """Queued jobs without a position that nobody holds, oldest first; and how many there are."""
        return self._section(UNPLACED, limit, readable_by)

    def _section(
        self, condition: TextClause, limit: int, readable_by: str | None, *, latest_first: bool = False
    ) -> tuple[list[JobKey], int]:
        order = col(Job.ended_at).desc() if latest_first else col(Job.number)
        rows, number = select(*KEY_COLUMNS).where(condition), select(func.count()).select_from(Job).where(condition)
        if readable_by is not None:
            rows, number = rows.where(Job.owner == readable_by), number.where(Job.owner == readable_by)
        with self._database.reading() as session:
            return read_keys(session, rows.order_by(order).limit(limit)), session.exec(number).one()

    def done(self, limit: int, readable_by: str | None) -> list[JobKey]:
        """Jobs of no experiment that have ended, latest first, without archived ones and unseen failures."""
        query = select(*KEY_COLUMNS).where(DONE, col(Job.experiment_id).is_(None)).order_by(col(Job.ended_at).desc())
        if readable_by is not None:
            query = query.where(Job.owner == readable_by)
        with self._database.reading() as session:
            return read_keys(session, query.limit(limit))

    def ended_experiments(self, limit: int, readable_by: str | None) -> list[EndedExperiment]:
        """The latest experiments without active jobs that have a job as in ``done``, by its end, latest first."""
        active = exists().where(col(Job.experiment_id) == Experiment.id, col(Job.ended_at).is_(None))
        latest = select(func.max(Job.ended_at)).where(DONE, Job.experiment_id == Experiment.id).scalar_subquery()
        query = select(Experiment, latest).where(~active).order_by(col(Experiment.number).desc()).limit(_EXPERIMENTS)
        if readable_by is not None:
            query = query.where(Experiment.owner == readable_by)
        with self._database.reading() as session:
            rows = [EndedExperiment(experiment, at) for experiment, at in session.exec(query) if at is not None]
        return sorted(rows, key=lambda each: -each.ended_at)[:limit]
