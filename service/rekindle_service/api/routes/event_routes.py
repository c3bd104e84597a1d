"""One server-sent stream for everything: changes of all jobs, and ranks, metrics and logs of followed jobs."""

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.api.auth import IdentityDep
from rekindle_service.api.dependencies import AppState, AppStateDep, known_attempts, readable_job
from rekindle_service.api.pagination import MAX
from rekindle_service.api.problems import ApiError, invalid_field
from rekindle_service.api.routes.job_routes import job_public
from rekindle_service.api.routes.rank_routes import ranks_public
from rekindle_service.api.worker_pools import EVENTS
from rekindle_service.run_readers.log_files import open_or_empty, read_chunk, tail_offset
from rekindle_service.run_readers.metric_series import metric_files, read_metric_lines
from rekindle_service.schemas.fields import ApiModel
from rekindle_service.schemas.job_json import Hello
from rekindle_service.schemas.rank_json import RankPublic
from rekindle_service.store import StorageError, Store
from rekindle_service.store.tables import Job

router = APIRouter(tags=["events"])

POLL_INTERVAL = 0.3  # seconds
_MAX_LISTENERS = 500
_UNTIL_SLOWER = 100
"""With more listeners each is polled for less often, so that all together cost no more than these."""

_MAX_FOLLOWED = 16
_LOG = re.compile(r"(?:([a-z0-9]{10}):)?([0-9]{1,6}):(stdout|stderr)")
_VERSION = re.compile(r"[0-9]{1,18}")

_LAST_EVENT_ID = "Id of the last event that was received: the stream resumes with all jobs that have changed since"

Jobs = Annotated[list[str], Query(max_length=_MAX_FOLLOWED, description="Jobs whose ranks and metrics to follow")]
Logs = Annotated[
    list[str],
    Query(max_length=_MAX_FOLLOWED, description="Logs to follow: `rank:stream` of a single job, or `job:rank:stream`"),
]
_MAX_CHANGES = 100
_MAX_POINTS = 500
_MAX_METRIC_BYTES = 256 * 1024
_MAX_LOG_BYTES = 64 * 1024
_LOG_HISTORY = 16 * 1024  # bytes and lines of a log that are sent first
_STABLE_FIELDS = attrgetter(*({each.name for each in fields(RankPublic)} - {"heartbeat_age", "process_state"}))
_RANKS_REFRESH = 5.0  # seconds after which unchanged ranks are sent again, for the age of their heartbeats


@dataclass(frozen=True, slots=True)
class LogSubscription:
    """The output of one rank, attempt after attempt."""

    rank: int
    stream: str


_FileKey = LogSubscription | int
"""A log, or the index in ``metric_files``."""


class RanksEvent(ApiModel):
    """Data of a `ranks` event."""

    job: str
    """Id of the job."""
    attempt: int
    """Number of the attempt."""
    items: list[RankPublic]
    """All ranks of the attempt."""


@dataclass(frozen=True, slots=True)
class RanksView:
    """The ranks of an attempt. ``stable_fields`` has no field that changes by the passing of time alone."""

    stable_fields: list[tuple[Any, ...]]
    alive: bool
    event: ServerSentEvent


@dataclass(slots=True)
class _Position:
    """How far a file that exists in every attempt was sent: up to ``offset`` in that of ``attempt``."""

    attempt: int
    offset: int


@dataclass(slots=True)
class JobFeed:
    """Each poll sends at most one chunk of each file, so that a client that starts late gets bounded events."""

    state: AppState
    job_id: str
    logs: list[LogSubscription]
    _attempts: list[int] = field(default_factory=list)  # ascending
    _ranks: list[tuple[Any, ...]] | None = None
    _ranks_sent_at: float = 0.0
    _positions: dict[_FileKey, _Position] = field(default_factory=dict)

    def poll(self, not_before: float) -> Iterator[ServerSentEvent]:
        """``not_before``: see ``SingleFlightCache``."""
        polls = self.state.polls
        job = polls.get(("job", self.job_id), lambda: self.state.store.job(self.job_id), not_before)
        if job is None or self.job_id in self.state.scheduler_health().stuck:
            return
        run_dir = self.state.home.run_dir(self.job_id)
        store = self.state.store
        self._attempts = polls.get(("attempts", self.job_id), lambda: known_attempts(store, run_dir), not_before)
        if not self._attempts:
            return
        latest = self._attempts[-1]
        view = polls.get(("ranks", self.job_id, latest), lambda: _ranks_view(store, job, run_dir, latest), not_before)
        yield from self._ranks_events(view)
        for index, path in enumerate(metric_files(run_dir, latest)):
            last_line = partial(_tail_offset, run_dir, path, 1, _MAX_LOG_BYTES)  # it may be incomplete yet
            yield from self._file_events(index, latest, last_line, partial(self._next_points, run_dir, index))
        for log in self.logs:
            path = _log_path(run_dir, latest, log)
            history = partial(_tail_offset, run_dir, path, _LOG_HISTORY, _LOG_HISTORY)
            yield from self._file_events(log, latest, history, partial(self._next_chunk, run_dir, log))

    def _ranks_events(self, view: RanksView) -> Iterator[ServerSentEvent]:
        now = time.monotonic()
        refresh = now - self._ranks_sent_at >= _RANKS_REFRESH and view.alive
        if view.stable_fields == self._ranks and not refresh:
            return
        self._ranks, self._ranks_sent_at = view.stable_fields, now
        yield view.event

    def _file_events(
        self, file: _FileKey, latest: int, start: Callable[[], int], read: Callable[[_Position], ServerSentEvent | None]
    ) -> Iterator[ServerSentEvent]:
        """Yield one event or none; the file of an attempt is sent to its end before that of the next attempt begins."""
        if file not in self._positions:
            self._positions[file] = _Position(latest, start())
        position = self._positions[file]
        while (event := read(position)) is None:
            later = [number for number in self._attempts if number > position.attempt]
            if not later:
                return
            position.attempt, position.offset = min(later), 0
        yield event

    def _next_points(self, run_dir: RunDir, index: int, position: _Position) -> ServerSentEvent | None:
        """The points after ``position``, which is advanced; None where there are none yet."""
        points, start = [], position.offset
        path = metric_files(run_dir, position.attempt)[index]
        for line in read_metric_lines(run_dir.root, path, position.offset):
            points.append({"step": line.step, "epoch": line.epoch, "at": line.at, "values": line.values})
            position.offset = line.end
            if len(points) == _MAX_POINTS or position.offset - start > _MAX_METRIC_BYTES:
                break
        if not points:
            return None
        span = {"file": path.name, "offset": start, "next_offset": position.offset}
        return _event("metrics", {"job": self.job_id, "attempt": position.attempt, **span, "points": points})

    def _next_chunk(self, run_dir: RunDir, log: LogSubscription, position: _Position) -> ServerSentEvent | None:
        """The output after ``position``, which is advanced; None where there is none yet."""
        with open_or_empty(run_dir.root, _log_path(run_dir, position.attempt, log)) as file:
            chunk = read_chunk(file, position.offset, _MAX_LOG_BYTES)
        if chunk.next_offset == chunk.offset:
            return None
        position.offset = chunk.next_offset
        source = {"job": self.job_id, "attempt": position.attempt, "rank": log.rank, "stream": log.stream}
        span = {"offset": chunk.offset, "next_offset": chunk.next_offset}
        return _event("log", {**source, **span, "text": chunk.text})


class Feed:
    """Pull-based: nothing is queued for a client, so one that reads slowly or not at all costs no memory.

    Each poll reads rows and files as they are. Clients that poll at about the same time share the results, serialised
    once. Not thread-safe: one poll at a time.
    """

    def __init__(
        self, state: AppState, jobs: dict[str, list[LogSubscription]], since: int | None, readable_by: str | None
    ) -> None:
        """Follows ``jobs``, by id, with some of their logs. ``since``: the last version that the client received.

        ``readable_by``: jobs of other owners are omitted, see ``access.permissions.Permissions``.
        """
        self._state = state
        self._readable_by = readable_by
        self._jobs = [JobFeed(state, job_id, logs) for job_id, logs in jobs.items()]
        latest = state.store.feed.version()
        self.version = latest if since is None else min(since, latest)
        self._polled_at = time.monotonic()

    def poll(self) -> list[ServerSentEvent]:
        """The events since the last poll, oldest first; an id is the version up to which all changes were sent."""
        store, since = self._state.store, self.version
        rows = self._state.polls.get(("rows", since), lambda: _row_changes(store, since), self._polled_at)
        self.version, all_changes = rows
        changes = [event for owner, event in all_changes if self._readable_by in (None, owner)]
        events = [*changes, *(event for job in self._jobs for event in job.poll(self._polled_at))]
        self._polled_at = time.monotonic()
        return events


def _row_changes(store: Store, since: int) -> tuple[int, list[tuple[str | None, ServerSentEvent]]]:
    """Owners and events of all changes of rows after ``since`` up to the version that comes with them."""
    changes = store.feed.changes(since, _MAX_CHANGES)
    events = [(event.owner, _event("deleted", {"id": event.job_id})) for event in changes.deleted]
    events += [(job.owner, _event("job", job_public(job), str(job.version))) for job in changes.jobs]
    return changes.latest, events


def _event(kind: str, data: BaseModel | dict[str, Any], version: str | None = None) -> ServerSentEvent:
    """Its data is JSON already: serialised once for all clients, and not in the event loop."""
    text = data.model_dump_json() if isinstance(data, BaseModel) else json.dumps(data, allow_nan=False)
    return ServerSentEvent(event=kind, raw_data=text, id=version)


def _ranks_view(store: Store, job: Job, run_dir: RunDir, number: int) -> RanksView:
    ranks = ranks_public(job, run_dir, store.attempt(job.id, number) or AttemptInfo(number))
    return RanksView(
        stable_fields=[_STABLE_FIELDS(rank) for rank in ranks],
        alive=any(rank.heartbeat_age is not None for rank in ranks),
        event=_event("ranks", RanksEvent(job=job.id, attempt=number, items=ranks)),
    )


def _log_path(run_dir: RunDir, attempt: int, log: LogSubscription) -> Path:
    return run_dir.attempt(attempt).rank(log.rank).log(log.stream)


def _tail_offset(run_dir: RunDir, path: Path, lines: int, limit: int) -> int:
    with open_or_empty(run_dir.root, path) as file:
        return tail_offset(file, lines, limit)


async def _count_listener(state: AppStateDep) -> AsyncIterator[None]:
    """A listener until its stream ends. Raises ApiError (503) where there are too many."""
    if state.listeners.count >= _MAX_LISTENERS:
        detail = (
            f"{state.listeners.count} clients receive events, which is the maximum: close pages that nobody reads, or "
            "read GET /api/v1/jobs now and then instead"
        )
        raise ApiError(503, "too-many-listeners", detail, headers={"Retry-After": "10"})
    state.listeners.count += 1
    try:
        yield
    finally:
        state.listeners.count -= 1


def make_feed(
    state: AppStateDep,
    identity: IdentityDep,
    job: Jobs = [],  # noqa: B006 FastAPI copies defaults
    log: Logs = [],  # noqa: B006 FastAPI copies defaults
    last_event_id: Annotated[int | None, Query(ge=0, le=MAX, description=_LAST_EVENT_ID)] = None,
    last_event_id_header: Annotated[str | None, Header(alias="Last-Event-ID", description=_LAST_EVENT_ID)] = None,
) -> Feed:
    """The feed of one client. Raises ApiError (404, 422) before the stream has started."""
    logs: dict[str, list[LogSubscription]] = {readable_job(state, identity, job_id).id: [] for job_id in job}
    for text in log:
        job_id, subscription = _log_subscription(text, job)
        logs[job_id].append(subscription)
    if last_event_id is None and last_event_id_header is not None and _VERSION.fullmatch(last_event_id_header):
        last_event_id = int(last_event_id_header)
    return Feed(state, logs, last_event_id, state.access.permissions.readable_by(identity))


def _log_subscription(text: str, jobs: list[str]) -> tuple[str, LogSubscription]:
    match = _LOG.fullmatch(text)
    job_id = None if match is None else match[1] or (jobs[0] if len(jobs) == 1 else None)
    if match is None or job_id not in jobs:
        raise invalid_field(
            "log",
            "must be rank:stdout or rank:stderr where one job is followed, else job:rank:stdout or job:rank:stderr",
            text,
            f"log={text[:200]!r} is not a log of a followed job",
            hint="follow the job with job=",
        )
    return job_id, LogSubscription(int(match[2]), match[3])


@router.get("/events", response_class=EventSourceResponse, dependencies=[Depends(_count_listener)])
async def stream_events(
    state: AppStateDep, identity: IdentityDep, feed: Annotated[Feed, Depends(make_feed)]
) -> AsyncIterator[ServerSentEvent]:
    """Stream the events `hello`, `job` and `deleted`, and of followed jobs `ranks`, `metrics` and `log`.

    The id of an event is the version of a job. After a lost connection `Last-Event-ID` (or `last_event_id`) makes the
    stream resume with every job that has changed since. Ranks, metrics and logs do not resume: fetch them after
    `hello`. The stream ends when the token is revoked or expires.
    """
    yield ServerSentEvent(event="hello", data=Hello(version=feed.version, server_started_at=state.started_at))
    with suppress(StorageError):  # the client reconnects and then gets the error
        while not state.stopping.is_set() and state.access.is_current(identity):
            for event in await EVENTS.run(feed.poll):
                yield event
            await anyio.sleep(POLL_INTERVAL * max(1.0, state.listeners.count / _UNTIL_SLOWER))
