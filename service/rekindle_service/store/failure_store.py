"""``FailureStore``: which jobs have failed alike."""

from typing import NamedTuple

from sqlmodel import col, select

from rekindle.contract.outcome import Outcome
from rekindle.contract.states import JobState
from rekindle_service.store.database import Database
from rekindle_service.store.tables import Job

_SEARCHED = 200  # latest failed jobs that are compared
_LISTED = 5
_ALIKE = ("exception", "file", "line")  # of an outcome


class FailedJob(NamedTuple):
    """Enough of a job to name it and link to it."""

    id: str
    number: int
    name: str


class FailureStore:
    """Part of ``Store``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alike(self, job_id: str, outcome: Outcome, *, readable_by: str | None) -> list[FailedJob]:
        """The latest of the other failed jobs with the same exception at the same line of the same file.

        ``readable_by``: only jobs of this owner (``access.permissions.Permissions``).
        """
        wanted = [outcome.exception, outcome.file, outcome.line]
        if None in wanted:
            return []
        numbers = select(Job.number).where(Job.state == JobState.FAILED, Job.id != job_id)
        if readable_by is not None:
            numbers = numbers.where(col(Job.owner) == readable_by)
        values = [col(Job.outcome)[name].as_string() for name in _ALIKE]
        with self._database.reading() as session:  # the numbers are in an index: few rows are read
            latest = session.exec(numbers.order_by(col(Job.number).desc()).limit(_SEARCHED)).all()
            columns = (col(Job.id), col(Job.number), col(Job.name), *values)
            rows = session.execute(
                select(*columns).where(col(Job.number).in_(latest)).order_by(col(Job.number).desc())
            ).all()
        same = [
            FailedJob(*row[:3]) for row in rows if [str(value) for value in row[3:]] == [str(each) for each in wanted]
        ]
        return same[:_LISTED]
