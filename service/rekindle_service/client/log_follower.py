"""All ranks' output, across attempts and restarts of the server, with nothing lost and nothing twice.

What has been shown is counted in bytes of each log file, and those files only grow: whatever connection is lost in
between, the next read begins where the last one ended.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rekindle_service.client.dialogue import Ask, Dialogue, Pause
from rekindle_service.client.job_answers import Attempt, Job, LogPart, Rank, rests
from rekindle_service.client.line_cutter import LineCutter
from rekindle_service.sanitize import strip_control

_POLL = 0.3  # seconds
_RESUME_KNOWN_AFTER = 2.0  # seconds that the first lines of an attempt wait for the step it resumed from

T = TypeVar("T")
Answered = Generator[Any, Any, T]
"""A part of a dialogue that ends with a result."""


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which logs of a job: None means every one."""

    rank: int | None = None
    stream: str | None = None
    attempt: int | None = None
    tail: int | None = None  # begin so many lines before the end

    @property
    def streams(self) -> tuple[str, ...]:
        return ("stdout", "stderr") if self.stream is None else (self.stream,)


@dataclass(frozen=True, slots=True)
class LogLine:
    """As it was written, with its end."""

    rank: int
    stream: str
    raw: bytes

    @property
    def text(self) -> str:
        """Harmless on a terminal, without its end."""
        return strip_control(self.raw.rstrip(b"\r\n").decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Headline:
    """Here an attempt begins."""

    attempt: int
    resumed_from_step: int | None


@dataclass(slots=True)
class _Cursor:
    """How much of one log has been read."""

    offset: int | None = None  # None: nothing yet
    cutter: LineCutter = field(default_factory=LineCutter)


class LogFollower:
    """The chosen logs of one job, read once."""

    def __init__(self, job_id: str, choice: LogChoice) -> None:
        self._job_id = job_id
        self._choice = choice
        self._cursors: dict[tuple[int, int, str], _Cursor] = {}
        self._first_seen: dict[int, float] = {}  # attempt → monotonic seconds
        self._begun: set[int] = set()
        self._finished: set[int] = set()

    def so_far(self) -> Dialogue[LogLine | Headline]:
        """What has been written until now."""
        for attempt in (yield from self._attempts()):
            yield from self._begin(attempt)
            yield from self._fresh(attempt["number"])
            yield from self._rests(attempt["number"])
        yield from self._require_chosen()

    def follow(self) -> Dialogue[LogLine | Headline]:
        """What has been and will be written, until no more can come.

        Order matters: a job that was over before its attempts were read has no further attempt, and an attempt that
        had ended before its logs were read has no further line.
        """
        while True:
            job: Job = yield Ask(lambda client: client.job(self._job_id))
            over = rests(job)
            for attempt in (yield from self._attempts()):
                yield from self._news(attempt, over)
            if over:
                yield from self._require_chosen()
                return
            yield Pause(_POLL)

    def _require_chosen(self) -> Answered[None]:
        """Have the server refuse a chosen attempt that there is not: it tells those that there are."""
        chosen = self._choice.attempt
        if chosen is not None and chosen not in self._begun:
            yield Ask(lambda client: client.ranks(self._job_id, chosen))

    def _attempts(self) -> Answered[list[Attempt]]:
        """The attempts to show and not shown to their end yet; ``tail`` begins with the newest."""
        attempts: list[Attempt] = yield Ask(lambda client: client.attempts(self._job_id))
        if self._choice.attempt is not None:
            attempts = [attempt for attempt in attempts if attempt["number"] == self._choice.attempt]
        elif self._choice.tail is not None and not self._begun:
            attempts = attempts[-1:]
        started = min(self._begun, default=0)
        return [each for each in attempts if each["number"] >= started and each["number"] not in self._finished]

    def _news(self, attempt: Attempt, over: bool) -> Dialogue[LogLine | Headline]:
        number, ended = attempt["number"], over or attempt["state"] == "ended"
        if not (ended or self._may_begin(attempt)):
            return
        yield from self._begin(attempt)
        yield from self._fresh(number)
        if ended:
            yield from self._rests(number)
            self._finished.add(number)

    def _may_begin(self, attempt: Attempt) -> bool:
        """Whether the headline can say where the attempt resumed from, or has waited long enough for it."""
        first_seen = self._first_seen.setdefault(attempt["number"], time.monotonic())
        known = attempt["number"] == 1 or attempt["resumed_from_step"] is not None
        return known or time.monotonic() - first_seen > _RESUME_KNOWN_AFTER

    def _begin(self, attempt: Attempt) -> Dialogue[LogLine | Headline]:
        if attempt["number"] in self._begun:
            return
        self._begun.add(attempt["number"])
        yield Headline(attempt["number"], attempt["resumed_from_step"])

    def _fresh(self, attempt: int) -> Dialogue[LogLine | Headline]:
        """The whole lines that have come since the last look."""
        for rank in (yield from self._ranks(attempt)):
            for stream in self._choice.streams:
                cursor = self._cursors.setdefault((attempt, rank, stream), _Cursor())
                while part := (yield from self._read(attempt, rank, stream, cursor)):
                    yield from (LogLine(rank, stream, line) for line in cursor.cutter.cut(part))

    def _rests(self, attempt: int) -> Dialogue[LogLine | Headline]:
        """Last lines without an end, once nothing more will come."""
        for (number, rank, stream), cursor in self._cursors.items():
            rest = cursor.cutter.rest() if number == attempt else b""
            if rest:
                yield LogLine(rank, stream, rest)

    def _ranks(self, attempt: int) -> Answered[list[int]]:
        if self._choice.rank is not None:
            return [self._choice.rank]
        ranks: list[Rank] = yield Ask(lambda client: client.ranks(self._job_id, attempt))
        return sorted(rank["rank"] for rank in ranks)

    def _read(self, attempt: int, rank: int, stream: str, cursor: _Cursor) -> Answered[bytes]:
        """The next bytes of one log; empty at its end."""
        part: LogPart = yield self._part(attempt, rank, stream, cursor.offset)
        cursor.offset = part.next_offset
        return part.data

    def _part(self, attempt: int, rank: int, stream: str, offset: int | None) -> Ask:
        if offset is None and self._choice.tail is not None and attempt == min(self._begun):
            lines = self._choice.tail
            return Ask(lambda client: client.log_tail(self._job_id, rank, stream, attempt, lines))
        return Ask(lambda client: client.log(self._job_id, rank, stream, attempt, offset=offset or 0))
