"""Figures of all jobs: statistics of the queue, and totals, which include deleted jobs: a counter never goes back."""

import collections
from dataclasses import dataclass

from sqlalchemy import case
from sqlmodel import Session, col, func, select

from rekindle.contract.states import JobState
from rekindle_service.store.tables import Attempt, Counter, Job

_RESTARTS = "deleted:restarts"
_ENDINGS = "deleted:ended:"  # followed by the class of the outcome
_CLASS = col(Attempt.outcome)["class"].as_string().label("class")


@dataclass(frozen=True, slots=True)
class Totals:
    """Jobs by state now; restarts and ended attempts, by the class of their outcome, since the database is there."""

    jobs: dict[JobState, int]
    restarts: int
    endings: dict[str, int]


def totals(session: Session) -> Totals:
    restarts = int(session.exec(select(func.sum(Job.restarts))).one() or 0)
    endings = collections.Counter(dict(session.exec(select(_CLASS, func.count()).group_by("class")).all()))
    for row in session.exec(select(Counter).where(col(Counter.name).startswith(_ENDINGS))):
        endings[row.name.removeprefix(_ENDINGS)] += row.value
    deleted = session.get(Counter, _RESTARTS)
    return Totals(
        jobs=jobs_by_state(session),
        restarts=restarts + (deleted.value if deleted is not None else 0),
        endings={name: count for name, count in endings.items() if name is not None},
    )


def archive_counts(session: Session, job: Job) -> None:
    """Keep the counts of a job that is about to be deleted."""
    mine = select(_CLASS, func.count()).where(Attempt.job_id == job.id).group_by("class")
    counts = {_ENDINGS + name: count for name, count in session.exec(mine).all() if name is not None}
    for name, count in {**counts, _RESTARTS: job.restarts}.items():
        row = session.get(Counter, name) or Counter(name=name, value=0)
        row.value += count
        session.add(row)


def jobs_by_state(session: Session) -> dict[JobState, int]:
    by_state = select(Job.state, func.count()).group_by(col(Job.state))
    return {JobState(state): count for state, count in session.exec(by_state)}


def goodput(session: Session, now: float) -> float | None:
    """The mean over all jobs, cheap enough to be called at every change."""
    seconds = func.coalesce(col(Job.ended_at), now) - col(Job.started_at)
    weight = case((seconds > 0, seconds), else_=0.0) * func.coalesce(col(Job.world_size), 1)
    known = col(Job.goodput).is_not(None) & col(Job.started_at).is_not(None)
    part, whole = session.exec(select(func.sum(col(Job.goodput) * weight), func.sum(weight)).where(known)).one()
    return part / whole if part is not None and whole else None
