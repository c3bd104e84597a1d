"""``JobLookup``: jobs by what people call them, among all jobs."""

import re

from sqlmodel import col, select

from rekindle_service.store.database import Database
from rekindle_service.store.tables import Job

_ID_LENGTH = 10
_NUMBER = re.compile(r"#?([0-9]{1,18})", re.ASCII)
_ID = re.compile(r"[a-z0-9]{10}")
_ID_PREFIX = re.compile(r"[a-z0-9]{4,9}")
_MAX_MATCHES = 5
_COMPARED_JOBS = 5000  # latest jobs whose names are compared with a misspelt one


class JobLookup:
    """Every method takes ``readable_by``: only jobs of this owner; None: those of everybody."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def matches(self, reference: str, readable_by: str | None) -> list[Job]:
        """The job with this id, else with this number (``12`` or ``#12``), else the latest of this name; else those
        whose id starts with ``reference`` (at least 4 characters), latest first and at most 5.
        """
        queries = [select(Job).where(col(Job.id) == reference)] if _ID.fullmatch(reference) else []
        if number := _NUMBER.fullmatch(reference):
            queries.append(select(Job).where(col(Job.number) == int(number[1])))
        queries.append(select(Job).where(col(Job.name) == reference).order_by(col(Job.number).desc()).limit(1))
        if _ID_PREFIX.fullmatch(reference):
            missing = _ID_LENGTH - len(reference)
            low, high = reference + "0" * missing, reference + "z" * missing
            queries.append(select(Job).where(col(Job.id).between(low, high)).limit(_MAX_MATCHES))
        for query in queries:
            allowed = query if readable_by is None else query.where(col(Job.owner) == readable_by)
            if found := self._database.rows(allowed):
                return sorted(found, key=lambda job: -job.number)
        return []

    def recent_names(self, readable_by: str | None) -> dict[str, int]:
        """The names of the latest 5,000 jobs, each with the number of its latest job, latest first."""
        query = select(Job.name, Job.number).order_by(col(Job.number).desc()).limit(_COMPARED_JOBS)
        if readable_by is not None:
            query = query.where(col(Job.owner) == readable_by)
        names: dict[str, int] = {}
        with self._database.reading() as session:
            for name, number in session.exec(query):
                names.setdefault(name, number)
        return names
