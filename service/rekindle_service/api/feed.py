"""What one listener of the event stream has not heard yet.

Pull-based: nothing is queued for a listener, each poll looks at rows and files as they are, so one that reads slowly
or not at all costs no memory. Listeners that ask at about the same time share a look, and what it says as JSON.
Not thread-safe: one poll at a time.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.sse import ServerSentEvent
from pydantic import BaseModel

from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.api.job_view import job_public
from rekindle_service.api.ranks import rank_rows
from rekindle_service.api.schemas import RankPublic
from rekindle_service.api.services import Services
from rekindle_service.run_readers.attempt_metrics import metric_files
from rekindle_service.run_readers.logs import read_chunk, tail_offset
from rekindle_service.run_readers.metrics import read_metric_lines
from rekindle_service.run_readers.ranks import AttemptFacts, read_attempts
from rekindle_service.run_readers.safe_open import open_regular
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_MOST_CHANGES = 100
_MOST_POINTS = 500
_MOST_METRIC_BYTES = 256 * 1024
_MOST_LOG_BYTES = 64 * 1024
_LOG_HISTORY = 16 * 1024
_RANKS_ANEW = 5.0  # seconds after which living ranks are told again, since the age of their last sign has changed


@dataclass(frozen=True, slots=True)
class LogSubscription:
    """The output of one rank, attempt after attempt."""

    rank: int
    stream: str


@dataclass(slots=True)
class _Position:
    """How far a file that every attempt has was told: up to ``offset`` in that of ``attempt``."""

    attempt: int
    offset: int


class RanksTold(BaseModel):
    """Data of a `ranks` event."""

    job: str
    attempt: int
    items: list[RankPublic]


@dataclass(frozen=True, slots=True)
class _RanksSeen:
    """One look at the ranks of an attempt. ``lasting``: what does not change by itself as time goes by."""

    lasting: list[dict[str, Any]]
    alive: bool
    event: ServerSentEvent


@dataclass(frozen=True, slots=True)
class _RowsSeen:
    """What has happened to jobs up to the version ``newest``."""

    newest: int
    events: list[ServerSentEvent]


@dataclass(slots=True)
class JobFeed:
    """Ranks, metrics and logs of one followed job."""

    services: Services
    job_id: str
    logs: list[LogSubscription]
    _attempts: dict[int, AttemptFacts] = field(default_factory=dict)  # by number, ascending
    _journal_seen: tuple[int, int] | None = None
    _ranks: list[dict[str, Any]] | None = None
    _ranks_told_at: float = 0.0
    _metrics: dict[int, _Position] = field(default_factory=dict)  # by the place in ``metric_files``
    _positions: dict[LogSubscription, _Position] = field(default_factory=dict)

    def poll(self, newer_than: float) -> Iterator[ServerSentEvent]:
        """``newer_than``: see ``Glances``."""
        glances = self.services.glances
        job = glances.at(("job", self.job_id), lambda: self.services.store.job(self.job_id), newer_than)
        if job is None:
            return
        run_dir = self.services.home.run_dir(self.job_id)
        attempt = self._latest_attempt(run_dir)
        if attempt is None:
            return
        ranks = ("ranks", self.job_id, attempt.number)
        yield from self._ranks_events(glances.at(ranks, lambda: _look_at_ranks(job, run_dir, attempt), newer_than))
        for index, path in enumerate(metric_files(run_dir, attempt.number)):
            yield from self._metrics_events(run_dir, attempt.number, index, path)
        for subscription in self.logs:
            yield from self._log_events(run_dir, attempt.number, subscription)

    def _latest_attempt(self, run_dir: RunDir) -> AttemptFacts | None:
        """Reads the journal only when it has changed."""
        try:
            stat = run_dir.journal.stat()
        except OSError:
            return None
        seen = stat.st_size, stat.st_mtime_ns
        if seen != self._journal_seen:
            self._attempts = read_attempts(run_dir)
            self._journal_seen = seen
        return self._attempts[max(self._attempts)] if self._attempts else None

    def _ranks_events(self, seen: _RanksSeen) -> Iterator[ServerSentEvent]:
        now = time.monotonic()
        aged = now - self._ranks_told_at >= _RANKS_ANEW and seen.alive
        if seen.lasting == self._ranks and not aged:
            return
        self._ranks, self._ranks_told_at = seen.lasting, now
        yield seen.event

    def _metrics_events(self, run_dir: RunDir, latest: int, index: int, path: Path) -> Iterator[ServerSentEvent]:
        position = self._metrics.get(index)
        if position is None:
            position = self._metrics[index] = _Position(latest, _end_of_lines(run_dir.root, path))
        yield from self._next_piece(position, lambda: self._next_points(run_dir, index, position))

    def _log_events(self, run_dir: RunDir, latest: int, wanted: LogSubscription) -> Iterator[ServerSentEvent]:
        position = self._positions.get(wanted)
        if position is None:
            position = self._positions[wanted] = _Position(latest, _start_of_tail(run_dir, latest, wanted))
        yield from self._next_piece(position, lambda: self._next_chunk(run_dir, wanted, position))

    def _next_piece(self, position: _Position, read: Callable[[], ServerSentEvent | None]) -> Iterator[ServerSentEvent]:
        """At most one piece: of the attempt that ``position`` is in to its end, only then of the one behind it."""
        while (event := read()) is None:
            later = [number for number in self._attempts if number > position.attempt]
            if not later:
                return
            position.attempt, position.offset = min(later), 0
        yield event

    def _next_points(self, run_dir: RunDir, index: int, position: _Position) -> ServerSentEvent | None:
        """The points behind ``position``, which is moved behind them; None where there are none yet."""
        points, began = [], position.offset
        path = metric_files(run_dir, position.attempt)[index]
        for line in read_metric_lines(run_dir.root, path, position.offset):
            points.append({"step": line.step, "epoch": line.epoch, "at": line.at, "values": line.values})
            position.offset = line.end
            if len(points) == _MOST_POINTS or position.offset - began > _MOST_METRIC_BYTES:
                break
        if not points:
            return None
        place = {"file": path.name, "offset": began, "next_offset": position.offset}
        return _event("metrics", {"job": self.job_id, "attempt": position.attempt, **place, "points": points})

    def _next_chunk(self, run_dir: RunDir, wanted: LogSubscription, position: _Position) -> ServerSentEvent | None:
        """The output behind ``position``, which is moved behind it; None where there is none yet."""
        file = open_regular(run_dir.root, _log(run_dir, position.attempt, wanted))
        if file is None:
            return None
        with file:
            chunk = read_chunk(file, position.offset, _MOST_LOG_BYTES)
        if chunk.next_offset == chunk.offset:
            return None
        position.offset = chunk.next_offset
        return _log_event(self.job_id, position.attempt, wanted, chunk.offset, chunk.next_offset, chunk.text)


class Feed:
    """All that one listener follows: every job's row, and some jobs in depth."""

    def __init__(self, services: Services, jobs: list[JobFeed], since: int | None) -> None:
        self._services = services
        self._jobs = jobs
        newest = services.store.version()
        self.version = newest if since is None else min(since, newest)
        self._polled_at = time.monotonic()

    def poll(self) -> list[ServerSentEvent]:
        """What has happened since the last poll, oldest first; an id is the version up to which all has been told."""
        glances, since = self._services.glances, self.version
        seen = glances.at(("rows", since), lambda: _look_at_rows(self._services.store, since), self._polled_at)
        self.version = seen.newest
        events = list(seen.events)
        for job in self._jobs:
            events += job.poll(self._polled_at)
        self._polled_at = time.monotonic()
        return events


def _look_at_rows(store: Store, since: int) -> _RowsSeen:
    changes = store.changes(since, _MOST_CHANGES)
    events = [_event("deleted", {"id": job_id}) for job_id in changes.deleted]
    events += [_event("job", job_public(job), str(job.version)) for job in changes.jobs]
    return _RowsSeen(changes.latest, events)


def _look_at_ranks(job: Job, run_dir: RunDir, attempt: AttemptFacts) -> _RanksSeen:
    rows = rank_rows(job, run_dir, attempt)
    return _RanksSeen(
        lasting=[row.model_dump(mode="json", exclude={"heartbeat_age", "process_state"}) for row in rows],
        alive=any(row.heartbeat_age is not None for row in rows),
        event=_event("ranks", RanksTold(job=job.id, attempt=attempt.number, items=rows)),
    )


def _event(kind: str, data: BaseModel | dict[str, Any], version: str | None = None) -> ServerSentEvent:
    """An event whose data is JSON already: made once, however many listeners it is told, and not in the event loop."""
    text = data.model_dump_json() if isinstance(data, BaseModel) else json.dumps(data, allow_nan=False)
    return ServerSentEvent(event=kind, raw_data=text, id=version)


def _log_event(
    job_id: str, attempt: int, wanted: LogSubscription, offset: int, next_offset: int, text: str
) -> ServerSentEvent:
    data = {
        "job": job_id,
        "attempt": attempt,
        "rank": wanted.rank,
        "stream": wanted.stream,
        "offset": offset,
        "next_offset": next_offset,
        "text": text,
    }
    return _event("log", data)


def _log(run_dir: RunDir, attempt: int, wanted: LogSubscription) -> Path:
    return run_dir.attempt(attempt).rank(wanted.rank).log(wanted.stream)


def _start_of_tail(run_dir: RunDir, attempt: int, wanted: LogSubscription) -> int:
    file = open_regular(run_dir.root, _log(run_dir, attempt, wanted))
    if file is None:
        return 0
    with file:
        return tail_offset(file, _LOG_HISTORY, _LOG_HISTORY)


def _end_of_lines(root: Path, path: Path) -> int:
    """Where the last line of a file begins, so that a line which is still being written is not missed."""
    file = open_regular(root, path)
    if file is None:
        return 0
    with file:
        return tail_offset(file, 1, _MOST_LOG_BYTES)
