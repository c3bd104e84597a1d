"""The queue in a few figures, cheap enough to be asked for at every change."""

from dataclasses import dataclass

from sqlmodel import Session, col, func, select

from rekindle.contract.states import JobState
from rekindle_service.store.tables import Job


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Jobs by state. ``goodput``: their mean, each weighted by its time since the first launch and its ranks."""

    jobs: dict[JobState, int]
    goodput: float | None


def queue_stats(session: Session, now: float) -> QueueStats:
    by_state = select(Job.state, func.count()).group_by(col(Job.state))
    jobs = {JobState(state): count for state, count in session.exec(by_state)}
    return QueueStats(jobs=jobs, goodput=_goodput(session, now))


def _goodput(session: Session, now: float) -> float | None:
    seconds = func.coalesce(col(Job.ended_at), now) - col(Job.started_at)
    weight = func.max(seconds, 0.0) * func.coalesce(col(Job.world_size), 1)
    known = col(Job.goodput).is_not(None) & col(Job.started_at).is_not(None)
    part, whole = session.exec(select(func.sum(col(Job.goodput) * weight), func.sum(weight)).where(known)).one()
    return part / whole if part is not None and whole else None
