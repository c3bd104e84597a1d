"""How far each receiver of notifications has been told."""

from sqlmodel import col, select

from rekindle_service.rows import Event, Sequence
from rekindle_service.store.database import Database
from rekindle_service.store.row_changes import last_value

_PREFIX = "told:"


class DeliveryStore:
    """Part of ``Store``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def cursor(self, receiver: str) -> int:
        """Id of the last event that ``receiver`` was told, or for a new one, of the last event that there is."""
        with self._database.writing() as session:
            row = session.get(Sequence, _PREFIX + receiver)
            if row is None:
                row = Sequence(name=_PREFIX + receiver, value=last_value(session, "version"))
                session.add(row)
            return row.value

    def advance(self, receiver: str, event_id: int) -> None:
        with self._database.writing() as session:
            session.merge(Sequence(name=_PREFIX + receiver, value=event_id))

    def events(self, since: int, limit: int) -> list[Event]:
        """At most ``limit`` events of any job behind ``since``, oldest first."""
        query = select(Event).where(col(Event.id) > since).order_by(col(Event.id)).limit(limit)
        with self._database.reading() as session:
            return list(session.exec(query))
