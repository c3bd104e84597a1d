"""Kept up to date with each change of a row: figures of all jobs in ``Counter``, and in memory who holds slots.

SQLAlchemy calls the listeners below within the transaction that changes a row, whoever changes it. A statement that
changes many rows at once (``update``, ``delete``) bypasses them: it must not touch what is kept here. Rows that were
deleted remain in what adds up over the time (restarts, endings): it never goes back.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, event, insert, inspect, update
from sqlalchemy.orm import object_session
from sqlmodel import Session, col, delete, func, select

from rekindle.contract.states import HOLDING_SLOTS, JobState
from rekindle_service.store.tables import Attempt, Counter, Job

_PREFIX = "total:"
_JOBS = _PREFIX + "jobs:"  # followed by the state
_RESTARTS = _PREFIX + "restarts"
_ENDINGS = _PREFIX + "ended:"  # attempts; followed by the class of the outcome
_SECONDS = _PREFIX + "milliseconds"  # of ranks of ended jobs, since their first launch
_USEFUL = _PREFIX + "useful"  # the part of them that the goodput says
_DELETED = "deleted:"  # restarts and endings of deleted jobs, by the same names
_CLASS = col(Attempt.outcome)["class"].as_string().label("class")
_CHANGED = "jobs changed"  # in ``Session.info``
_JOB_COLUMNS = ("state", "restarts", "goodput", "started_at", "ended_at", "world_size")


@dataclass(frozen=True, slots=True)
class JobTotals:
    """Jobs by state now; restarts and ended attempts, by the class of their outcome, since the database is there.

    ``goodput`` is the mean over all jobs, each weighted by its time since the first launch and its ranks.
    """

    jobs: dict[JobState, int]
    restarts: int
    endings: dict[str, int]
    goodput: float | None = None


def totals(session: Session, now: float) -> JobTotals:
    values = _values(session)
    endings: Tally[str] = Tally()
    for prefix in (_ENDINGS, _deleted(_ENDINGS)):
        endings.update({name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)})
    return JobTotals(
        jobs=_jobs_by_state(values),
        restarts=values.get(_RESTARTS, 0) + values.get(_deleted(_RESTARTS), 0),
        endings={name: count for name, count in endings.items() if count},
        goodput=_goodput(session, values, now),
    )


def jobs_by_state(session: Session) -> dict[JobState, int]:
    """Without states that no job is in."""
    return _jobs_by_state(_values(session))


def queued_jobs(session: Session) -> int:
    return jobs_by_state(session).get(JobState.QUEUED, 0)


def _goodput(session: Session, values: Mapping[str, int], now: float) -> float | None:
    seconds, useful = values.get(_SECONDS, 0), values.get(_USEFUL, 0)
    # as the index ``ix_job_unfinished`` says it: the rows of the past are not read
    unfinished = select(Job.goodput, Job.started_at, Job.world_size)
    unfinished = unfinished.where(col(Job.ended_at).is_(None), col(Job.started_at).is_not(None))
    for share, started_at, world_size in session.exec(unfinished):
        weight, part = _weight(share, started_at or now, now, world_size)
        seconds, useful = seconds + weight, useful + part
    return useful / seconds if seconds else None


def archive_counts(session: Session, job: Job) -> None:
    """Keep the counts of a job that is about to be deleted; the database deletes its attempts."""
    mine = _endings(session, job.id)
    _add(session.connection(), {_deleted(name): count for name, count in {**mine, _RESTARTS: job.restarts}.items()})
    _add(session.connection(), {name: -count for name, count in mine.items()})


def forget_attempts(session: Session, job_id: str) -> None:
    """Delete the attempts of a job whose journal is about to be read again."""
    _add(session.connection(), {name: -count for name, count in _endings(session, job_id).items()})
    session.execute(delete(Attempt).where(col(Attempt.job_id) == job_id))


# --- the parts of a row


def _share_of_job(job: Mapping[str, Any]) -> dict[str, int]:
    """What one job adds to the totals."""
    weight, useful = 0, 0
    if job["started_at"] is not None and job["ended_at"] is not None:
        weight, useful = _weight(job["goodput"], job["started_at"], job["ended_at"], job["world_size"])
    state = JobState(job["state"]).value
    return {_JOBS + state: 1, _RESTARTS: job["restarts"], _SECONDS: weight, _USEFUL: useful}


def _weight(goodput: float | None, started_at: float, ended_at: float, world_size: int | None) -> tuple[int, int]:
    """Milliseconds of all ranks, and the part of them that was useful; none of a job whose goodput is not known."""
    if goodput is None:
        return 0, 0
    weight = round(max(0.0, ended_at - started_at) * (world_size or 1) * 1000)
    return weight, round(goodput * weight)


def _share_of_attempt(outcome: Mapping[str, Any] | None) -> dict[str, int]:
    name = None if outcome is None else outcome.get("class")
    return {} if name is None else {f"{_ENDINGS}{name}": 1}


def _endings(session: Session, job_id: str) -> dict[str, int]:
    mine = select(_CLASS, func.count()).where(Attempt.job_id == job_id).group_by("class")
    return {_ENDINGS + name: count for name, count in session.exec(mine).all() if name is not None}


# --- the counters


def _values(session: Session) -> dict[str, int]:
    found = col(Counter.name).startswith(_PREFIX) | col(Counter.name).startswith(_DELETED)
    return dict(session.exec(select(Counter.name, Counter.value).where(found)).all())


def _jobs_by_state(values: Mapping[str, int]) -> dict[JobState, int]:
    return {state: count for state in JobState if (count := values.get(_JOBS + state.value, 0))}


def _deleted(name: str) -> str:
    """The counter of deleted jobs."""
    return _DELETED + name.removeprefix(_PREFIX)


def _add(connection: Connection, changes: Mapping[str, int]) -> None:
    for name, change in sorted(changes.items()):
        if not change:
            continue
        increase = update(Counter).where(col(Counter.name) == name).values(value=col(Counter.value) + change)
        if connection.execute(increase).rowcount == 0:
            connection.execute(insert(Counter).values(name=name, value=change))


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}


# --- the listeners


def _before(row: object, columns: Iterable[str]) -> dict[str, Any]:
    """What the columns were when the row was read."""
    histories = {name: inspect(row).attrs[name].history for name in columns}
    return {name: (history.deleted or history.unchanged or [None])[0] for name, history in histories.items()}


def _now(row: object, columns: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in columns}


@event.listens_for(Job, "after_insert")
def _on_insert(_mapper: object, connection: Connection, job: Job) -> None:
    _add(connection, _share_of_job(_now(job, _JOB_COLUMNS)))
    _note(job)


@event.listens_for(Job, "after_update")
def _on_update(_mapper: object, connection: Connection, job: Job) -> None:
    before, now = _before(job, _JOB_COLUMNS), _now(job, _JOB_COLUMNS)
    if before != now:
        _add(connection, _difference(_share_of_job(before), _share_of_job(now)))
    _note(job)


@event.listens_for(Job, "after_delete")
def _on_delete(_mapper: object, connection: Connection, job: Job) -> None:
    _add(connection, _difference(_share_of_job(_now(job, _JOB_COLUMNS)), {}))
    _note(job, deleted=True)


@event.listens_for(Attempt, "after_insert")
def _on_attempt(_mapper: object, connection: Connection, attempt: Attempt) -> None:
    _add(connection, _share_of_attempt(attempt.outcome))


@event.listens_for(Attempt, "after_update")
def _on_attempt_update(_mapper: object, connection: Connection, attempt: Attempt) -> None:
    before = _before(attempt, ("outcome",))["outcome"]
    _add(connection, _difference(_share_of_attempt(before), _share_of_attempt(attempt.outcome)))


# --- who holds slots


def _note(job: Job, *, deleted: bool = False) -> None:
    """Remember the change until its transaction is committed."""
    session = object_session(job)
    if session is not None:
        session.info.setdefault(_CHANGED, {})[job.id] = None if deleted else job


def holding_after(holding: Mapping[str, Job], session: Session) -> Mapping[str, Job]:
    """The jobs that hold slots, by id, once ``session`` has been committed. No row in it is changed any more."""
    changed: Mapping[str, Job | None] = session.info.pop(_CHANGED, {})
    if not changed:
        return holding
    kept = {job_id: job for job_id, job in holding.items() if job_id not in changed}
    return kept | {job_id: job for job_id, job in changed.items() if job is not None and job.state in HOLDING_SLOTS}
