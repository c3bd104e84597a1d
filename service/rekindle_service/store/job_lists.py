"""``JobLists``: pages of jobs, latest first, as whole rows or as the keys under which their JSON is kept."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Select
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from rekindle.contract.states import JobIntent, JobState
from rekindle_service.store.database import Database
from rekindle_service.store.job_conditions import NO_CONDITIONS, JobConditions
from rekindle_service.store.tables import Job


class JobKey(NamedTuple):
    """What orders lists of jobs, and the version of a row: every write gives it another one."""

    id: str
    version: int
    number: int
    queue_position: int | None
    intent: JobIntent
    ended_at: float | None


KEY_COLUMNS = tuple(getattr(Job, name) for name in JobKey._fields)


def key_of(job: Job) -> JobKey:
    return JobKey(*(getattr(job, name) for name in JobKey._fields))


class JobLists:
    """Part of ``Store``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def jobs(self, conditions: JobConditions = NO_CONDITIONS, *, limit: int = 50, **equal: Any) -> list[Job]:
        """The latest ``limit`` jobs that match. ``equal``: see ``_matching``."""
        chosen = self._matching(conditions, **equal).limit(limit)
        with self._database.reading() as session:
            numbers = session.exec(chosen).all()
            page = select(Job).where(col(Job.number).in_(numbers)).order_by(col(Job.number).desc())
            return list(session.exec(page)) if numbers else []

    def keys(self, conditions: JobConditions = NO_CONDITIONS, *, limit: int = 50, **equal: Any) -> list[JobKey]:
        """As ``jobs``, without reading more than the keys."""
        chosen = self._matching(conditions, **equal).limit(limit)
        with self._database.reading() as session:
            numbers = session.exec(chosen).all()
            page = select(*KEY_COLUMNS).where(col(Job.number).in_(numbers)).order_by(col(Job.number).desc())
            return read_keys(session, page) if numbers else []

    def by_id(self, ids: Collection[str]) -> list[Job]:
        """In no order; those that are gone are missing."""
        return self._database.rows(select(Job).where(col(Job.id).in_(ids))) if ids else []

    def _matching(
        self,
        conditions: JobConditions,
        *,
        state: JobState | None = None,
        name: str | None = None,
        name_part: str | None = None,
        experiment_id: str | None = None,
        owner: str | None = None,
        readable_by: str | None = None,
        before: int | None = None,
    ) -> SelectOfScalar[int]:
        """The numbers of jobs, latest first: they are all in an index, so that only the rows of one page are read.

        ``before`` is the number of the last job of the page before. ``name_part`` may be anywhere in the name, upper or
        lower case as far as ASCII goes. ``readable_by``: only jobs of this owner, whatever else is requested
        (``access.permissions.Permissions``).
        """
        equal = {"state": state, "name": name, "experiment_id": experiment_id, "owner": owner}
        chosen = select(Job.number).filter_by(**{column: value for column, value in equal.items() if value is not None})
        chosen = conditions.apply(chosen).order_by(col(Job.number).desc())
        if name_part is not None:
            chosen = chosen.where(col(Job.name).contains(name_part, autoescape=True))
        if readable_by is not None:
            chosen = chosen.where(col(Job.owner) == readable_by)
        return chosen if before is None else chosen.where(col(Job.number) < before)


def read_keys(session: Session, query: Select[Any]) -> list[JobKey]:
    return [JobKey(*row) for row in session.execute(query)]
