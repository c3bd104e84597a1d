"""``ChangeFeed``: what has changed since a version, for whoever remembers the last one that it has seen."""

from typing import NamedTuple

from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from rekindle_service.store.database import Database
from rekindle_service.store.mutations import last_value
from rekindle_service.store.tables import Event, Job


class Changes(NamedTuple):
    """What happened after a version; continue from ``latest``."""

    jobs: list[Job]  # ascending by version
    deleted: list[Event]  # tombstones
    latest: int


class ChangeFeed:
    """Part of ``Store``, which explains what a version is. Thread-safe; any method may raise StorageError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def version(self) -> int:
        """The version of the last change."""
        with self._database.reading() as session:
            return last_value(session, "version")

    def tombstones(self, since: int, limit: int = 500) -> list[Event]:
        """The events of at most ``limit`` deletions after version ``since``, oldest first."""
        return self._database.rows(_tombstones(since, limit))

    def changes(self, since: int, limit: int = 500) -> Changes:
        """At most ``limit`` jobs changed and ids deleted after version ``since``, in the order of the change."""
        query = select(Job).where(col(Job.version) > since).order_by(col(Job.version)).limit(limit)
        with self._database.reading() as session:
            jobs = list(session.exec(query))
            gone = list(session.exec(_tombstones(since, limit)))
            latest = max(since, last_value(session, "version"))
        if len(jobs) == limit:
            latest = jobs[-1].version
        if len(gone) == limit:
            latest = min(latest, gone[-1].id)
        return Changes(
            [job for job in jobs if job.version <= latest],
            [event for event in gone if event.id <= latest],
            latest,
        )


def _tombstones(since: int, limit: int) -> SelectOfScalar[Event]:
    return select(Event).where(Event.kind == "deleted", col(Event.id) > since).order_by(col(Event.id)).limit(limit)
