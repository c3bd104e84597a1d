"""The queue and its slots: queued jobs, what they show, how many there may be; used and disabled slots."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, bindparam, update
from sqlmodel import Session, col, delete, func, or_, select

from rekindle.contract.states import JobIntent, JobState
from rekindle_service.job_wording import job_label
from rekindle_service.store.job_queries import KEY_COLUMNS, JobKey, read_keys
from rekindle_service.store.mutations import next_values
from rekindle_service.store.sqlite import StorePart
from rekindle_service.store.storage_errors import QueueFullError
from rekindle_service.store.tables import LOCAL, Attempt, DeviceState, Event, Job, SlotUsage
from rekindle_service.store.totals import queued_jobs

_PAGE = 200
_DURATIONS = 5000  # latest jobs whose durations are read
_MOVES = 2000  # latest changes of states by which the jobs of the past hours are found
_ATTEMPTS = 4000  # latest attempts of those
_FORGOTTEN = 1.0  # slot-seconds below which an owner has used nothing


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """Most jobs that may wait, in all and of ``owner``; None: as many as they like."""

    owner: str | None = None
    total: int | None = None
    of_owner: int | None = None

    def require(self, session: Session, added: int) -> None:
        """Raises QueueFullError where that many more do not fit."""
        if self.of_owner is not None:
            mine = select(func.count()).where(Job.state == JobState.QUEUED, Job.owner == self.owner)
            _require(session.exec(mine).one(), added, self.of_owner, f"{self.owner or 'the owner'} may queue")
        if self.total is not None:
            _require(queued_jobs(session), added, self.total, "this server queues (max_queued)")


NO_LIMIT = QueueRoom()


def _require(queued: int, added: int, limit: int, who: str) -> None:
    if added > limit:
        raise QueueFullError(f"{who} at most {limit} jobs at once, and these are {added}: submit fewer")
    if queued + added > limit:
        advice = "wait until some have started, or cancel some"
        raise QueueFullError(f"{who} at most {limit} jobs at once, and {queued} wait already: {advice}")


class Shown(NamedTuple):
    """Columns of a queued job that the scheduler writes."""

    queue_position: int | None = None
    waiting_for: str | None = None
    estimated_start_at: float | None = None


class HeldSlots(NamedTuple):
    """An attempt that held slots, or a job that holds or will get some. Times are in seconds since the epoch."""

    job_id: str
    run: int
    devices: list[str]
    started_at: float
    ended_at: float | None
    number: int  # of the job
    name: str
    owner: str | None
    state: JobState
    gpu_share: float | None


def held_slots(job: Job, devices: Sequence[str], started_at: float, ended_at: float | None) -> HeldSlots:
    times = (started_at, ended_at)
    return HeldSlots(
        job.id, job.run, [*devices], *times, job.number, job.name, job.owner, job.state, job.spec.gpu_share
    )


def of_owner(owner: str) -> ColumnElement[bool]:
    """Jobs of this owner; "local" are also those without one."""
    named = col(Job.owner) == owner
    return named | col(Job.owner).is_(None) if owner == LOCAL else named


_SHOW = (
    update(Job)
    .where(col(Job.id) == bindparam("row"), col(Job.state) == JobState.QUEUED)
    .values(**{name: bindparam(name) for name in ("version", *Shown._fields)})
)


class QueueStore(StorePart):
    """Part of ``Store``."""

    def jobs(self) -> Iterator[Job]:
        """All queued jobs by number, read page by page."""
        query = select(Job).where(Job.state == JobState.QUEUED).order_by(col(Job.number)).limit(_PAGE)
        page = self._database.rows(query)
        while page:
            yield from page
            page = self._database.rows(query.where(col(Job.number) > page[-1].number))

    def with_intent(self, intent: JobIntent, limit: int, *, new: bool | None = None) -> list[Job]:
        """Some of the queued jobs with this intent; ``new``: those that have never run, or only the others."""
        query = select(Job).where(Job.state == JobState.QUEUED, Job.intent == intent)
        if new is not None:
            query = query.where((Job.run == 0) if new else (col(Job.run) > 0))
        return self._database.rows(query.limit(limit))

    def count(self) -> int:
        with self._database.reading() as session:
            return queued_jobs(session)

    def job_label(self, job_id: str) -> str:
        """``digits (#3)``; of a job whose row is gone its id."""
        with self._database.reading() as session:
            row = session.exec(select(Job.name, Job.number).where(Job.id == job_id)).first()
        return f"job {job_id}" if row is None else job_label(*row)

    def require_room(self, room: QueueRoom, added: int) -> None:
        """Raises QueueFullError. To be asked before any code is copied: when rows are added it is asked again."""
        with self._database.reading() as session:
            room.require(session, added)

    def show(self, places: Mapping[str, Shown]) -> tuple[int, int]:
        """Set what these jobs show, as far as they are still queued; returns the first and last version given."""
        with self._database.writing() as session:
            first = next_values(session, "version", len(places)) if places else 0
            rows = [
                {"row": job_id, "version": version, **shown._asdict()}
                for version, (job_id, shown) in enumerate(places.items(), start=first)
            ]
            if rows:
                session.connection().execute(_SHOW, rows)
        return first, first + len(places) - 1

    def durations(self) -> list[Job]:
        """The latest jobs that have succeeded, latest first, without their specs: only to be measured."""
        columns = [getattr(Job, name) for name in ("id", "owner", "name", "state", "run", "started_at", "ended_at")]
        query = select(*columns).where(Job.state == JobState.SUCCEEDED).order_by(col(Job.number).desc())
        with self._database.reading() as session:
            return [Job(**row._mapping) for row in session.exec(query.limit(_DURATIONS))]

    def keys(
        self,
        *,
        positioned: bool,
        limit: int,
        after: int | None = None,
        readable_by: str | None = None,
        owner: str | None = None,
    ) -> list[JobKey]:
        """Queued jobs after the position or number ``after``: those with a position, or those without one."""
        key, has_position = (col(Job.queue_position) if positioned else col(Job.number)), col(Job.queue_position)
        query = select(*KEY_COLUMNS)
        if positioned:
            query = query.where(has_position.is_not(None))  # only queued jobs have one; see its index
        else:
            query = query.where(Job.state == JobState.QUEUED, has_position.is_(None))
        owners = [] if readable_by is None else [col(Job.owner) == readable_by]
        owners += [] if owner is None else [of_owner(owner)]
        for condition in owners:  # few have a position, and many the same owner, whose index must not be taken
            query = query.where(condition.is_(True) if positioned else condition)
        if after is not None:
            query = query.where(key > after)
        with self._database.reading() as session:
            return read_keys(session, query.order_by(key).limit(limit))

    def by_owner(self) -> dict[str | None, int]:
        """How many jobs of each owner wait."""
        query = select(Job.owner, func.count()).where(Job.state == JobState.QUEUED).group_by(col(Job.owner))
        with self._database.reading() as session:
            return dict(session.exec(query).all())

    def held_since(self, since: float, holding: Collection[str]) -> list[HeldSlots]:
        """Attempts that ended after ``since`` or have not ended, by job and number: the latest 4,000 of them.

        ``holding``: ids of the jobs that hold slots. Other jobs are found by their latest changes of state, so that no
        row of an older past is read.
        """
        moves = select(Event.job_id, Event.at).where(Event.kind == "state").order_by(col(Event.id).desc()).limit(_MOVES)
        attempt = (Attempt.job_id, Attempt.run, Attempt.devices, Attempt.started_at, Attempt.ended_at)
        job = (Job.number, Job.name, Job.owner, Job.state, col(Job.spec)["gpu_share"].as_float())
        columns: Sequence[Any] = (*attempt, *job)
        with self._database.reading() as session:
            ids = {job_id for job_id, at in session.exec(moves) if at > since}.union(holding)
            query = select(*columns).where(Attempt.job_id == Job.id, col(Job.id).in_(ids))
            query = query.where(or_(col(Attempt.ended_at).is_(None), col(Attempt.ended_at) > since))
            rows = session.execute(query.order_by(col(Attempt.started_at).desc()).limit(_ATTEMPTS))
            return sorted((HeldSlots(*row) for row in rows), key=lambda each: (each.job_id, each.run, each.started_at))

    def awaited(self) -> Collection[str]:
        """Ids of the jobs that queued ones wait for."""
        return {other for job in self.jobs() for other in (*job.spec.after, *job.spec.after_any)}

    # --- what each owner has used

    def usage(self) -> dict[str, SlotUsage]:
        """By owner."""
        return {row.owner: row for row in self._database.rows(select(SlotUsage))}

    def set_usage(self, slot_seconds: Mapping[str, float], at: float) -> None:
        """Replace all of it; owners with next to nothing are removed."""
        used = {owner: seconds for owner, seconds in slot_seconds.items() if seconds >= _FORGOTTEN}
        with self._database.writing() as session:
            session.execute(delete(SlotUsage).where(col(SlotUsage.owner).not_in(used)))
            for owner, seconds in used.items():
                session.merge(SlotUsage(owner=owner, slot_seconds=seconds, at=at))


class DeviceStore(StorePart):
    """Part of ``Store``: the devices that are disabled, by UUID of a GPU or name of a CPU slot."""

    def states(self) -> dict[str, DeviceState]:
        """What was ever recorded of devices; others are not in it."""
        return {row.device: row for row in self._database.rows(select(DeviceState))}

    def disable(self, device: str, reason: str, at: float, by: str | None) -> None:
        with self._database.writing() as session:
            session.merge(DeviceState(device=device, reason=reason, at=at, by=by))

    def enable(self, device: str, at: float, by: str, acknowledged: Sequence[str]) -> None:
        with self._database.writing() as session:
            row = DeviceState(device=device, reason="", at=at, by=by, acknowledged=list(acknowledged))
            session.merge(row)
