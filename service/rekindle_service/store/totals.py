"""What adds up over all jobs, also over those that were deleted: a counter never goes back."""

import collections
from dataclasses import dataclass

from sqlmodel import Session, col, func, select

from rekindle.contract.states import JobState
from rekindle_service.store.tables import Attempt, Counter, Job

_RESTARTS = "deleted:restarts"
_ENDINGS = "deleted:ended:"  # followed by the class of the outcome
_CLASS = col(Attempt.outcome)["class"].as_string()


@dataclass(frozen=True, slots=True)
class Totals:
    """Jobs by state now; restarts and ended attempts, by the class of their outcome, since the database is there."""

    jobs: dict[JobState, int]
    restarts: int
    endings: dict[str, int]


def totals(session: Session) -> Totals:
    by_state = select(Job.state, func.count()).group_by(col(Job.state))
    restarts = session.exec(select(func.sum(Job.restarts))).one() or 0
    endings = collections.Counter(dict(session.exec(select(_CLASS, func.count()).group_by(_CLASS)).all()))
    for row in session.exec(select(Counter).where(col(Counter.name).startswith(_ENDINGS))):
        endings[row.name.removeprefix(_ENDINGS)] += row.value
    deleted = session.get(Counter, _RESTARTS)
    return Totals(
        jobs={JobState(state): count for state, count in session.exec(by_state)},
        restarts=restarts + (deleted.value if deleted is not None else 0),
        endings={name: count for name, count in endings.items() if name is not None},
    )


def archive_counts(session: Session, job: Job) -> None:
    """Keep the counts of a job that is about to be deleted."""
    mine = select(_CLASS, func.count()).where(Attempt.job_id == job.id).group_by(_CLASS)
    counts = {_ENDINGS + name: count for name, count in session.exec(mine).all() if name is not None}
    for name, count in {**counts, _RESTARTS: job.restarts}.items():
        row = session.get(Counter, name) or Counter(name=name, value=0)
        row.value += count
        session.add(row)
