"""Lists of jobs, the sections of the overview, and jobs and experiments by what people call them.

Each question reads the rows of its answer and no others.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple

from sqlalchemy import Select, TextClause
from sqlmodel import Session, col, exists, func, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from rekindle.contract.outcome import Outcome
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.store.sqlite import Database, StorePart
from rekindle_service.store.tables import (
    ARCHIVED,
    DONE,
    HELD,
    TAGGED,
    UNPLACED,
    UNSEEN_FAILURES,
    Experiment,
    Job,
    Row,
)

_EXPERIMENTS = 50  # latest ones, of which those with ended jobs are chosen
_FAILURES_SEARCHED = 200  # latest failed jobs that are compared
_FAILURES_LISTED = 5
_FAILURES_KEPT = 2000
_ID_LENGTH = 10
_NUMBER = re.compile(r"#?([0-9]{1,18})", re.ASCII)
_ID = re.compile(r"[a-z0-9]{10}")
MIN_ID_PREFIX = 4  # characters
_ID_PREFIX = re.compile(rf"[a-z0-9]{{{MIN_ID_PREFIX},{_ID_LENGTH - 1}}}")
_MAX_MATCHES = 5
_COMPARED_ROWS = 5000  # latest ones whose names are compared with a misspelt one


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


def read_keys(session: Session, query: Select[Any]) -> list[JobKey]:
    return [JobKey(*row) for row in session.execute(query)]


class JobName(NamedTuple):
    """A job as a link needs it."""

    id: str
    number: int
    name: str


class Mark(StrEnum):
    """What a job can be besides its state."""

    HELD = "held"
    UNSEEN = "unseen"  # failed, and nobody has looked at it since
    ARCHIVED = "archived"


_MARKS: dict[Mark, TextClause] = {Mark.HELD: HELD, Mark.UNSEEN: UNSEEN_FAILURES, Mark.ARCHIVED: ARCHIVED}


@dataclass(frozen=True, slots=True)
class JobConditions:
    """Conditions that hold together, all answered from indexes. ``experiment``: its id or its name."""

    states: frozenset[JobState] = frozenset()
    marks: frozenset[Mark] = frozenset()
    tags: frozenset[str] = frozenset()
    owner: str | None = None
    experiment: str | None = None
    number: int | None = None

    def apply(self, query: SelectOfScalar[int]) -> SelectOfScalar[int]:
        """``query`` for the numbers of jobs, with these conditions."""
        if len(self.states) == 1:
            query = query.where(col(Job.state).in_(self.states))
        elif self.states:  # as the opposite, so that the index by number is read: one by state would have to be sorted
            query = query.where(col(Job.state).not_in(set(JobState) - self.states))
        for mark in sorted(self.marks):
            query = query.where(_MARKS[mark])
        for tag in sorted(self.tags):
            query = query.where(TAGGED, col(Job.tags).contains(f" {tag} ", autoescape=True))
        if self.owner is not None:
            query = query.where(Job.owner == self.owner)
        if self.experiment is not None:
            known = or_(col(Experiment.id) == self.experiment, col(Experiment.name) == self.experiment)
            query = query.where(col(Job.experiment_id).in_(select(Experiment.id).where(known)))
        return query if self.number is None else query.where(Job.number == self.number)


NO_CONDITIONS = JobConditions()


@dataclass(frozen=True, slots=True)
class EndedExperiment:
    """An experiment whose jobs have ended, the last one at ``ended_at`` (seconds since the epoch)."""

    experiment: Experiment
    ended_at: float

    @property
    def id(self) -> str:
        return self.experiment.id


class JobLists(StorePart):
    """Part of ``Store``.

    ``readable_by``, ``changeable_by``: only jobs of this owner, whatever else is requested (``access.permissions``).
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._failures: dict[str, tuple[int, str, tuple[Any, ...]]] = {}  # see ``_read_failures``

    # --- pages, latest first

    def jobs(self, conditions: JobConditions = NO_CONDITIONS, *, limit: int = 50, **equal: Any) -> list[Job]:
        """The latest ``limit`` jobs that match. ``equal``: see ``_matching``."""
        chosen = self._matching(conditions, **equal).limit(limit)
        with self._database.reading() as session:
            numbers = session.exec(chosen).all()
            page = select(Job).where(col(Job.number).in_(numbers)).order_by(col(Job.number).desc())
            return list(session.exec(page)) if numbers else []

    def keys(self, conditions: JobConditions = NO_CONDITIONS, *, limit: int = 50, **equal: Any) -> list[JobKey]:
        """Read the keys of what ``jobs`` returns, and nothing else of it."""
        chosen = self._matching(conditions, **equal).limit(limit)
        with self._database.reading() as session:
            numbers = session.exec(chosen).all()
            page = select(*KEY_COLUMNS).where(col(Job.number).in_(numbers)).order_by(col(Job.number).desc())
            return read_keys(session, page) if numbers else []

    def by_id(self, ids: Collection[str]) -> list[Job]:
        """The jobs with these ids that there are, in no order."""
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
        lower case as far as ASCII goes.
        """
        equal = {"state": state, "name": name, "experiment_id": experiment_id, "owner": owner}
        chosen = select(Job.number).filter_by(**{column: value for column, value in equal.items() if value is not None})
        chosen = conditions.apply(chosen).order_by(col(Job.number).desc())
        if name_part is not None:
            chosen = chosen.where(col(Job.name).contains(name_part, autoescape=True))
        if readable_by is not None:
            chosen = chosen.where(col(Job.owner) == readable_by)
        return chosen if before is None else chosen.where(col(Job.number) < before)

    def failed_alike(self, job_id: str, outcome: Outcome, *, readable_by: str | None) -> list[Job]:
        """The latest of the other failed jobs with the same exception at the same line of the same file."""
        if None in (outcome.exception, outcome.file, outcome.line):
            return []
        latest = select(Job.number).where(Job.state == JobState.FAILED, Job.id != job_id)
        if readable_by is not None:
            latest = latest.where(col(Job.owner) == readable_by)
        latest = latest.order_by(col(Job.number).desc()).limit(_FAILURES_SEARCHED)
        stored = col(Job.outcome)
        query = select(Job).where(
            col(Job.number).in_(latest),
            stored["exception"].as_string() == outcome.exception,
            stored["file"].as_string() == outcome.file,
            stored["line"].as_integer() == outcome.line,
        )
        return self._database.rows(query.order_by(col(Job.number).desc()).limit(_FAILURES_LISTED))

    # --- sections of the overview

    def failures(self, limit: int, changeable_by: str | None) -> tuple[list[JobKey], int, dict[str, list[JobName]]]:
        """Jobs that have failed and that nobody has looked at since, latest first; and how many there are.

        Of the latest 200, those with the same exception at the same line are one: the others are listed by its id.
        """
        keys, number = self._section(UNSEEN_FAILURES, max(limit, _FAILURES_SEARCHED), changeable_by, latest_first=True)
        failures = self._read_failures(keys)
        first: dict[tuple[Any, ...], str] = {}
        alike: dict[str, list[JobName]] = {}
        shown = []
        for key in keys:
            _, name, cause = failures.get(key.id, (0, "", (None,)))
            same = key.id if None in cause else first.setdefault(cause, key.id)
            if same == key.id:
                shown.append(key)
            else:
                alike.setdefault(same, []).append(JobName(key.id, key.number, name))
        return shown[:limit], number, {key.id: alike[key.id] for key in shown[:limit] if key.id in alike}

    def _read_failures(self, keys: Iterable[JobKey]) -> dict[str, tuple[int, str, tuple[Any, ...]]]:
        """Version, name, and exception, file and line of failed jobs by id: each version of a job is read once."""
        kept, stored = self._failures, col(Job.outcome)
        missing = [key.id for key in keys if kept.get(key.id, (None,))[0] != key.version]
        if missing:
            cause = (stored["exception"].as_string(), stored["file"].as_string(), stored["line"].as_integer())
            columns: tuple[Any, ...] = (Job.id, Job.version, Job.name, *cause)
            with self._database.reading() as session:
                rows = session.execute(select(*columns).where(col(Job.id).in_(missing))).all()
            found = {job_id: (version, name, tuple(cause)) for job_id, version, name, *cause in rows}
            kept = self._failures = (kept if len(kept) < _FAILURES_KEPT else {}) | found
        return kept

    def held(self, limit: int, changeable_by: str | None) -> tuple[list[JobKey], int]:
        """Queued jobs that start only when they are released, oldest first; and how many there are."""
        return self._section(HELD, limit, changeable_by)

    def unplaced(self, limit: int, readable_by: str | None) -> tuple[list[JobKey], int]:
        """Queued jobs without a position that nobody holds, oldest first; and how many there are."""
        return self._section(UNPLACED, limit, readable_by)

    def _section(
        self, condition: TextClause, limit: int, owner: str | None, *, latest_first: bool = False
    ) -> tuple[list[JobKey], int]:
        order = col(Job.ended_at).desc() if latest_first else col(Job.number)
        rows, number = select(*KEY_COLUMNS).where(condition), select(func.count()).select_from(Job).where(condition)
        if owner is not None:
            rows, number = rows.where(Job.owner == owner), number.where(Job.owner == owner)
        with self._database.reading() as session:
            return read_keys(session, rows.order_by(order).limit(limit)), session.exec(number).one()

    def failures_of_others(self, limit: int, readable_by: str | None, changeable_by: str | None) -> list[JobKey]:
        """Find failures that somebody may read, and not mark as seen."""
        return self._of_others(UNSEEN_FAILURES, limit, readable_by, changeable_by)

    def held_of_others(self, limit: int, readable_by: str | None, changeable_by: str | None) -> list[JobKey]:
        """Find held jobs that somebody may read, and not release."""
        return self._of_others(HELD, limit, readable_by, changeable_by)

    def _of_others(
        self, condition: TextClause, limit: int, readable_by: str | None, changeable_by: str | None
    ) -> list[JobKey]:
        if changeable_by is None or limit <= 0:
            return []
        others = col(Job.owner).is_distinct_from(changeable_by)
        query = select(*KEY_COLUMNS).where(condition, others).order_by(col(Job.ended_at).desc(), col(Job.number))
        if readable_by is not None:
            query = query.where(Job.owner == readable_by)
        with self._database.reading() as session:
            return read_keys(session, query.limit(limit))

    def done(self, limit: int, readable_by: str | None) -> list[JobKey]:
        """Jobs of no experiment that have ended, latest first, without archived ones and unseen failures."""
        query = select(*KEY_COLUMNS).where(DONE, col(Job.experiment_id).is_(None)).order_by(col(Job.ended_at).desc())
        if readable_by is not None:
            query = query.where(Job.owner == readable_by)
        with self._database.reading() as session:
            return read_keys(session, query.limit(limit))

    def ended_experiments(self, limit: int, readable_by: str | None) -> list[EndedExperiment]:
        """The latest experiments without active jobs that have a job as in ``done``, by its end, latest first."""
        active = exists().where(col(Job.experiment_id) == Experiment.id, col(Job.ended_at).is_(None))
        latest = select(func.max(Job.ended_at)).where(DONE, Job.experiment_id == Experiment.id).scalar_subquery()
        query = select(Experiment, latest).where(~active).order_by(col(Experiment.number).desc()).limit(_EXPERIMENTS)
        if readable_by is not None:
            query = query.where(Experiment.owner == readable_by)
        with self._database.reading() as session:
            rows = [EndedExperiment(experiment, at) for experiment, at in session.exec(query) if at is not None]
        return sorted(rows, key=lambda each: -each.ended_at)[:limit]


class Lookup(Generic[Row]):
    """Jobs or experiments by what people call them, among all that ``readable_by`` owns; None: everybody's."""

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
