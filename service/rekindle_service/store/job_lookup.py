"""``Lookup``: jobs and experiments by what people call them, among all of them."""

import re
from typing import Generic, TypeVar

from sqlmodel import col, func, select

from rekindle_service.store.database import Database
from rekindle_service.store.tables import Experiment, Job

_ID_LENGTH = 10
_NUMBER = re.compile(r"#?([0-9]{1,18})", re.ASCII)
_ID = re.compile(r"[a-z0-9]{10}")
MIN_ID_PREFIX = 4  # characters
_ID_PREFIX = re.compile(rf"[a-z0-9]{{{MIN_ID_PREFIX},{_ID_LENGTH - 1}}}")
_MAX_MATCHES = 5
_COMPARED_ROWS = 5000  # latest ones whose names are compared with a misspelt one

Row = TypeVar("Row", Job, Experiment)


class Lookup(Generic[Row]):
    """Every method takes ``readable_by``: only rows of this owner; None: those of everybody."""

    def __init__(self, database: Database, table: type[Row]) -> None:
        self._database = database
        self._table: type[Row] = table

    def matches(self, reference: str, readable_by: str | None) -> list[Row]:
        """The row with this id, else with this number (``12`` or ``#12``), else the latest of this name; else those
        whose id starts with ``reference`` (at least ``MIN_ID_PREFIX`` characters), latest first and at most 5.
        """
        row = self._table
        queries = [select(row).where(col(row.id) == reference)] if _ID.fullmatch(reference) else []
        if number := _NUMBER.fullmatch(reference):
            queries.append(select(row).where(col(row.number) == int(number[1])))
        queries.append(select(row).where(col(row.name) == reference).order_by(col(row.number).desc()).limit(1))
        if _ID_PREFIX.fullmatch(reference):
            missing = _ID_LENGTH - len(reference)
            low, high = reference + "0" * missing, reference + "z" * missing
            queries.append(select(row).where(col(row.id).between(low, high)).limit(_MAX_MATCHES))
        for query in queries:
            allowed = query if readable_by is None else query.where(col(row.owner) == readable_by)
            if found := self._database.rows(allowed):
                return sorted(found, key=lambda each: -each.number)
        return []

    def starting_with(self, prefix: str, readable_by: str | None, limit: int) -> list[Row]:
        """The latest row of each name that starts with ``prefix``, latest first; then those whose id does."""
        numbers = list(self.recent_names(readable_by, prefix).values())[:limit]
        row = self._table
        named: list[Row] = self._database.rows(select(row).where(col(row.number).in_(numbers))) if numbers else []
        found = {each.number: each for each in sorted(named, key=lambda each: -each.number)}
        by_id = self.matches(prefix, readable_by) if _ID_PREFIX.fullmatch(prefix) else []
        found |= {each.number: each for each in by_id if each.id.startswith(prefix)}
        return list(found.values())[:limit]

    def recent_names(self, readable_by: str | None, prefix: str = "") -> dict[str, int]:
        """The names of the latest 5,000 rows, each with the number of its latest one, latest first.

        With ``prefix``, of the latest 5,000 rows whose names start with it.
        """
        row = self._table
        query = select(row.name, row.number).order_by(col(row.number).desc()).limit(_COMPARED_ROWS)
        if prefix:
            query = query.where(func.substr(row.name, 1, len(prefix)) == prefix)
        if readable_by is not None:
            query = query.where(col(row.owner) == readable_by)
        names: dict[str, int] = {}
        with self._database.reading() as session:
            for name, number in session.exec(query):
                names.setdefault(name, number)
        return names
