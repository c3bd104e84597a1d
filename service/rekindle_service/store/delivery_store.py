"""How far the events have been delivered to each notification channel."""

from sqlmodel import col, select

from rekindle_service.store.database import Database
from rekindle_service.store.mutations import last_value
from rekindle_service.store.tables import Counter, Event

_PREFIX = "delivered:"


class DeliveryStore:
    """Part of ``Store``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def cursor(self, channel: str) -> int:
        """Id of the last event that was delivered to ``channel``, or for a new one, of the last event of all."""
        with self._database.writing() as session:
            row = session.get(Counter, _PREFIX + channel)
            if row is None:
                row = Counter(name=_PREFIX + channel, value=last_value(session, "version"))
                session.add(row)
            return row.value

    def advance(self, channel: str, event_id: int) -> None:
        with self._database.writing() as session:
            session.merge(Counter(name=_PREFIX + channel, value=event_id))

    def events(self, since: int, limit: int) -> list[Event]:
        """At most ``limit`` events of any job after ``since``, oldest first."""
        query = select(Event).where(col(Event.id) > since).order_by(col(Event.id)).limit(limit)
        return self._database.rows(query)
