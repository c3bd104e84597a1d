"""What one listener of the event stream has not heard yet.

Pull-based: nothing is queued for a listener, each poll looks at rows and files as they are, so one that reads slowly
or not at all costs no memory. Not thread-safe: one poll at a time.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.sse import ServerSentEvent

from rekindle.contract.layout import RunDir
from rekindle_service.api.job_view import job_public
from rekindle_service.api.ranks import rank_rows
from rekindle_service.api.schemas import RankPublic
from rekindle_service.api.services import Services
from rekindle_service.readers.log_reader import read_chunk, size_of, tail_offset
from rekindle_service.readers.metric_reader import read_metric_lines
from rekindle_service.readers.rank_reader import AttemptFacts, read_attempts
from rekindle_service.readers.regular_file import open_regular
from rekindle_service.rows import Job

_MOST_CHANGES = 100
_MOST_POINTS = 500
_MOST_LOG_BYTES = 64 * 1024
_LOG_HISTORY = 16 * 1024
_RANKS_ANEW = 5.0  # seconds after which living ranks are told again, since the age of their last sign has changed


@dataclass(frozen=True, slots=True)
class LogSubscription:
    """The output of one rank, attempt after attempt."""

    rank: int
    stream: str


@dataclass(slots=True)
class _LogPosition:
    attempt: int
    offset: int


@dataclass(slots=True)
class JobFeed:
    """Ranks, metrics and logs of one followed job."""

    services: Services
    job_id: str
    logs: list[LogSubscription]
    _attempt: AttemptFacts | None = None
    _journal_seen: tuple[int, int] | None = None
    _ranks: list[dict[str, Any]] | None = None
    _ranks_told_at: float = 0.0
    _metrics: _LogPosition | None = None
    _positions: dict[LogSubscription, _LogPosition] = field(default_factory=dict)

    def poll(self) -> Iterator[ServerSentEvent]:
        job = self.services.store.job(self.job_id)
        if job is None:
            return
        run_dir = self.services.home.run_dir(self.job_id)
        attempt = self._latest_attempt(run_dir)
        if attempt is None:
            return
        yield from self._ranks_events(job, run_dir, attempt)
        yield from self._metrics_events(run_dir, attempt.number)
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
            attempts = read_attempts(run_dir)
            self._attempt = attempts[max(attempts)] if attempts else None
            self._journal_seen = seen
        return self._attempt

    def _ranks_events(self, job: Job, run_dir: RunDir, attempt: AttemptFacts) -> Iterator[ServerSentEvent]:
        rows = rank_rows(job, run_dir, attempt)
        ranks = [row.model_dump(mode="json", exclude={"heartbeat_age", "process_state"}) for row in rows]
        now = time.monotonic()
        aged = now - self._ranks_told_at >= _RANKS_ANEW and any(row.heartbeat_age is not None for row in rows)
        if ranks == self._ranks and not aged:
            return
        self._ranks, self._ranks_told_at = ranks, now
        yield _ranks_event(job.id, attempt.number, rows)

    def _metrics_events(self, run_dir: RunDir, attempt: int) -> Iterator[ServerSentEvent]:
        path = run_dir.attempt(attempt).rank(0).metrics
        position = self._metrics
        if position is None:
            position = self._metrics = _LogPosition(attempt, _end_of_lines(run_dir.root, path))
        elif position.attempt != attempt:
            position = self._metrics = _LogPosition(attempt, 0)
        points = []
        for line in read_metric_lines(run_dir.root, path, position.offset):
            points.append({"step": line.step, "epoch": line.epoch, "at": line.at, "values": line.values})
            position.offset = line.end
            if len(points) == _MOST_POINTS:
                break
        if points:
            yield ServerSentEvent(event="metrics", data={"job": self.job_id, "attempt": attempt, "points": points})

    def _log_events(self, run_dir: RunDir, attempt: int, wanted: LogSubscription) -> Iterator[ServerSentEvent]:
        file = open_regular(run_dir.root, run_dir.attempt(attempt).rank(wanted.rank).log(wanted.stream))
        position = self._positions.get(wanted)
        if position is None:
            start = 0 if file is None else tail_offset(file, _LOG_HISTORY, _LOG_HISTORY)
            position = self._positions[wanted] = _LogPosition(attempt, start)
        elif position.attempt != attempt:
            position = self._positions[wanted] = _LogPosition(attempt, 0)
        if file is None:
            return
        with file:
            if position.offset >= size_of(file):
                return
            chunk = read_chunk(file, position.offset, _MOST_LOG_BYTES)
        if chunk.next_offset > chunk.offset:
            position.offset = chunk.next_offset
            yield _log_event(self.job_id, attempt, wanted, chunk.offset, chunk.next_offset, chunk.text)


class Feed:
    """All that one listener follows: every job's row, and some jobs in depth."""

    def __init__(self, services: Services, jobs: list[JobFeed], since: int | None) -> None:
        self._services = services
        self._jobs = jobs
        newest = services.store.version()
        self.version = newest if since is None else min(since, newest)

    def poll(self) -> list[ServerSentEvent]:
        """What has happened since the last poll, oldest first; an id is the version up to which all has been told."""
        changes = self._services.store.changes(self.version, _MOST_CHANGES)
        self.version = changes.newest
        events = [ServerSentEvent(event="deleted", data={"id": job_id}) for job_id in changes.deleted]
        events += [_job_event(job) for job in changes.jobs]
        for job in self._jobs:
            events += job.poll()
        return events


def _job_event(job: Job) -> ServerSentEvent:
    return ServerSentEvent(event="job", data=job_public(job), id=str(job.version))


def _ranks_event(job_id: str, attempt: int, rows: list[RankPublic]) -> ServerSentEvent:
    items = [row.model_dump(mode="json") for row in rows]
    return ServerSentEvent(event="ranks", data={"job": job_id, "attempt": attempt, "items": items})


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
    return ServerSentEvent(event="log", data=data)


def _end_of_lines(root: Path, path: Path) -> int:
    """Where the last line of a file begins, so that a line which is still being written is not missed."""
    file = open_regular(root, path)
    if file is None:
        return 0
    with file:
        return tail_offset(file, 1, _MOST_LOG_BYTES)
