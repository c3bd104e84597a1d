"""``ChangeFeed``: what has changed since a version or event, for whoever remembers the last one that it has seen."""

from typing import NamedTuple

from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from rekindle_service.store.mutations import last_value
from rekindle_service.store.sqlite import Database
from rekindle_service.store.tables import Counter, Event, Job

_DELIVERED = "delivered:"  # followed by the notification channel


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
        """The events of the first ``limit`` deletions after version ``since``."""
        return self._database.rows(_tombstones(since, limit))

    def changes(self, since: int, limit: int = 500) -> Changes:
        """The first ``limit`` jobs changed and ids deleted after version ``since``, in the order of the change."""
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

    def events(self, since: int, limit: int) -> list[Event]:
        """The first ``limit`` events of any job after the event or version ``since``, oldest first."""
        query = select(Event).where(col(Event.id) > since).order_by(col(Event.id)).limit(limit)
        return self._database.rows(query)

    # --- how far the events have been delivered to each notification channel

    def delivered(self, channel: str) -> int:
        """Id of the last event that was delivered to ``channel``; a new one begins with the events from now on."""
        with self._database.writing() as session:
            row = session.get(Counter, _DELIVERED + channel)
            if row is None:
                row = Counter(name=_DELIVERED + channel, value=last_value(session, "version"))
                session.add(row)
            return row.value

    def set_delivered(self, channel: str, event_id: int) -> None:
        with self._database.writing() as session:
            session.merge(Counter(name=_DELIVERED + channel, value=event_id))


def _tombstones(since: int, limit: int) -> SelectOfScalar[Event]:
    return select(Event).where(Event.kind == "deleted", col(Event.id) > since).order_by(col(Event.id)).limit(limit)
