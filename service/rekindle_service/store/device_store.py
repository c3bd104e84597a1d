"""``DeviceStore``: which devices are disabled, and the attempts that may say so."""

from collections.abc import Collection, Sequence

from sqlmodel import col, select

from rekindle_service.store.database import Database
from rekindle_service.store.tables import Attempt, DeviceState, Event

_MAX_EVENTS = 500  # read at once


class DeviceStore:
    """Part of ``Store``. Thread-safe; any method may raise StorageError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def states(self) -> dict[str, DeviceState]:
        """By UUID of a GPU or name of a CPU slot; devices of which nothing was ever recorded are not in it."""
        return {row.device: row for row in self._database.rows(select(DeviceState))}

    def disable(self, device: str, reason: str, at: float, by: str | None) -> None:
        with self._database.writing() as session:
            session.merge(DeviceState(device=device, reason=reason, at=at, by=by))

    def enable(self, device: str, at: float, by: str, acknowledged: Sequence[str]) -> None:
        with self._database.writing() as session:
            row = DeviceState(device=device, reason="", at=at, by=by, acknowledged=list(acknowledged))
            session.merge(row)

    def latest_event(self) -> int:
        """Id of the latest event, 0 where there is none."""
        with self._database.reading() as session:
            return session.exec(select(Event.id).order_by(col(Event.id).desc()).limit(1)).first() or 0

    def jobs_with_ended_attempts(self, since: int) -> tuple[set[str], int]:
        """Jobs of which an attempt may have ended after the event ``since``, and the event up to which that is."""
        left = ("recovering", "succeeded", "failed", "cancelled", "queued")
        query = select(Event).where(col(Event.id) > since).order_by(col(Event.id)).limit(_MAX_EVENTS)
        events = self._database.rows(query)
        return {each.job_id for each in events if each.to_state in left}, events[-1].id if events else since

    def attempts_of(self, jobs: Collection[str]) -> list[Attempt]:
        """Those that have ended, in the order in which they did."""
        query = select(Attempt).where(col(Attempt.job_id).in_(jobs), col(Attempt.ended_at).is_not(None))
        return self._database.rows(query.order_by(col(Attempt.ended_at)))
