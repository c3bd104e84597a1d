"""``UsageStore``: what each owner has used, in slot-seconds that decay."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sqlmodel import col, delete, select

from rekindle_service.store.database import Database
from rekindle_service.store.tables import OwnerUsage

_FORGOTTEN = 1.0  # slot-seconds below which an owner has used nothing


@dataclass(frozen=True, slots=True)
class Usage:
    """Slot-seconds of one owner, counted and decayed until ``at`` (seconds since the epoch)."""

    slot_seconds: float
    at: float

    def decayed(self, now: float, half_life: float) -> float:
        """What is left of them ``now``; a clock that was set back does not make them grow."""
        return self.slot_seconds * math.exp2(-max(0.0, now - self.at) / half_life)


class UsageStore:
    """Part of ``Store``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> dict[str, Usage]:
        """By owner."""
        return {row.owner: Usage(row.slot_seconds, row.at) for row in self._database.rows(select(OwnerUsage))}

    def write(self, slot_seconds: Mapping[str, float], at: float) -> None:
        """Replace all of it; those of owners with next to nothing are removed."""
        with self._database.writing() as session:
            session.execute(delete(OwnerUsage).where(col(OwnerUsage.owner).not_in(slot_seconds)))
            for owner, seconds in slot_seconds.items():
                if seconds < _FORGOTTEN:
                    session.execute(delete(OwnerUsage).where(col(OwnerUsage.owner) == owner))
                else:
                    session.merge(OwnerUsage(owner=owner, slot_seconds=seconds, at=at))
