"""The output of all ranks, across attempts and restarts of the server, each line exactly once.

Progress is counted in bytes of each log file, which keep their offsets even where a part is removed: after a lost
connection the next read starts where the last one ended.
"""

import re
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from rekindle.contract import states
from rekindle_service.client.answers import Attempt, Job, Trial
from rekindle_service.client.calls import MAX_LOG_BYTES, ApiCalls, LogBytes
from rekindle_service.run_readers.log_files import hole_note
from rekindle_service.sanitize import strip_control

_POLL_INTERVAL = 0.3  # seconds
_RESUME_STEP_TIMEOUT = 2.0  # seconds that the header of an attempt waits for the step that it resumed from
_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")
_MAX_LINE = 1 << 16  # bytes; a longer line without an end is shown in parts
_MAX_CUT = 3  # bytes: the rest of a character, with which no tail begins


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which logs of a job; None selects all."""

    rank: int | None = None
    stream: str | None = None
    attempt: int | None = None
    tail: int | None = None  # start with the last N lines of the latest attempt


@dataclass(frozen=True, slots=True)
class LogLine:
    """``raw`` is the line as it was written, with its end."""

    rank: int
    stream: str
    raw: bytes

    @property
    def text(self) -> str:
        """The line without its end, safe on a terminal."""
        return strip_control(self.raw.rstrip(b"\r\n").decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class AttemptHeader:
    """The lines of an attempt follow."""

    attempt: int
    resumed_from_step: int | None


LogItem = LogLine | AttemptHeader


def is_settled(job: Job | Trial) -> bool:
    """Whether the job has ended or is held in the queue, so that only a person can continue it."""
    return states.is_settled(job["state"], job["intent"])


@dataclass(slots=True)
class LineBuffer:
    """Splits the bytes of one log into whole lines, wherever the chunks are cut.

    A carriage return ends a line too, since progress bars write no other end; as the last byte it may be half of a
    Windows line end, and waits for the next one.
    """

    offset: int | None = None  # of the next chunk in the log, None before the first one
    _rest: bytes = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, each with its end."""
        self._rest += data
        lines, taken = [], 0
        for end in _LINE_END.finditer(self._rest):
            lines.append(self._rest[taken : end.end()])
            taken = end.end()
        self._rest = self._rest[taken:]
        if len(self._rest) > _MAX_LINE:
            lines.append(self.flush())
        return lines

    def flush(self) -> bytes:
        """The last bytes without a line end; call it when no more bytes will come."""
        rest, self._rest = self._rest, b""
        return rest


class LogFollower:
    """The selected logs of one job, read once."""

    def __init__(
        self, client: ApiCalls, job_id: str, choice: LogFilter, on_job: Callable[[Job], None] | None = None
    ) -> None:
        self._client, self._job_id, self._filter, self._on_job = client, job_id, choice, on_job
        self._buffers: dict[tuple[int, int, str], LineBuffer] = {}
        self._first_seen: dict[int, float] = {}  # attempt → monotonic seconds
        self._started: set[int] = set()
        self._finished: set[int] = set()
        self._with_rank: set[int] = set()  # attempts that have the selected rank

    async def read(self, *, follow: bool) -> AsyncGenerator[LogItem, None]:
        """Everything that has been written so far; ``follow``: also what will be written until the job is settled.

        The order of reads matters: a job that was settled before its attempts were read has no further attempt, and
        an attempt that had ended before its logs were read has no further line.
        """
        while True:
            settled = not follow or is_settled(await self._read_job())
            for attempt in await self._attempts():
                ended = settled or attempt["state"] == "ended"
                if ended or self._has_resume_step(attempt):
                    async for item in self._read_attempt(attempt, ended=ended):
                        yield item
            await self._require_rank()
            if settled:
                break
            await self._client.sleep(_POLL_INTERVAL)
        selected = self._filter.attempt
        if selected is not None and selected not in self._started:  # the server's error lists those that exist
            await self._client.ranks(self._job_id, selected)

    async def _require_rank(self) -> None:
        """Raise the server's error, which lists the ranks, where no attempt so far has the selected one."""
        if self._filter.rank is not None and self._started and not self._with_rank:
            await self._client.log(self._job_id, self._filter.rank, "stdout", max(self._started), offset=0)

    async def _read_job(self) -> Job:
        job = await self._client.job(self._job_id)
        if self._on_job is not None:
            self._on_job(job)
        return job

    async def _attempts(self) -> list[Attempt]:
        """The selected attempts that may have unread lines; with ``tail`` the first of them is the latest."""
        attempts = await self._client.attempts(self._job_id)
        if self._filter.attempt is not None:
            attempts = [attempt for attempt in attempts if attempt["number"] == self._filter.attempt]
        elif self._filter.tail is not None and not self._started:
            attempts = attempts[-1:]
        first = min(self._started, default=0)
        return [each for each in attempts if each["number"] >= first and each["number"] not in self._finished]

    def _has_resume_step(self, attempt: Attempt) -> bool:
        """Whether the header can name the step that the attempt resumed from, or has waited long enough for it."""
        first_seen = self._first_seen.setdefault(attempt["number"], time.monotonic())
        known = attempt["number"] == 1 or attempt["resumed_from_step"] is not None
        return known or time.monotonic() - first_seen > _RESUME_STEP_TIMEOUT

    async def _read_attempt(self, attempt: Attempt, *, ended: bool) -> AsyncGenerator[LogItem, None]:
        """The unread lines of an attempt, after its header; ``ended``: also a last line without an end."""
        number = attempt["number"]
        if number not in self._started:
            self._started.add(number)
            yield AttemptHeader(number, attempt["resumed_from_step"])
        streams = ("stdout", "stderr") if self._filter.stream is None else (self._filter.stream,)
        for rank in await self._ranks(number):
            for stream in streams:
                buffer = self._buffers.setdefault((number, rank, stream), LineBuffer())
                while data := await self._chunk(number, rank, stream, buffer):
                    for line in buffer.feed(data):
                        yield LogLine(rank, stream, line)
        if ended:
            self._finished.add(number)
            for (of, rank, stream), buffer in self._buffers.items():
                if of == number and (rest := buffer.flush()):
                    yield LogLine(rank, stream, rest)

    async def _ranks(self, attempt: int) -> list[int]:
        """The selected ranks that the attempt has: those of an elastic job differ."""
        selected = self._filter.rank
        if selected is not None and attempt in self._with_rank:
            return [selected]
        ranks = sorted(rank["rank"] for rank in await self._client.ranks(self._job_id, attempt))
        if selected is None:
            return ranks
        if selected in ranks:
            self._with_rank.add(attempt)
        return [rank for rank in ranks if rank == selected]

    async def _chunk(self, attempt: int, rank: int, stream: str, buffer: LineBuffer) -> bytes:
        """The next bytes of one log; empty at its current end."""
        log, tail = (self._job_id, rank, stream, attempt), self._filter.tail
        if buffer.offset is None and tail is not None and attempt == min(self._started):
            chunk = await self._tail(log, tail)
        else:
            chunk = await self._client.log(*log, offset=buffer.offset or 0)
        buffer.offset = chunk.next_offset
        return f"\n{hole_note(chunk.removed)}\n".encode() + chunk.data if chunk.removed else chunk.data

    async def _tail(self, log: tuple[str, int, str, int], lines: int) -> LogBytes:
        """The last ``lines`` lines, or the first of them where they are long: what is before them is not kept.

        As on the server, lines before a removed part do not belong to the last ones.
        """
        part = await self._client.log_tail(*log, lines)
        if len(part.data) < MAX_LOG_BYTES - _MAX_CUT:
            return part
        begin, missing = part.next_offset - len(part.data), lines - part.data[:-1].count(b"\n")
        while missing > 0 and begin > 0 and not part.removed:
            offset, limit = max(begin - MAX_LOG_BYTES, 0), min(begin, MAX_LOG_BYTES)
            part = await self._client.log(*log, offset=offset, limit=limit)
            while part.next_offset < begin:  # a removed part follows
                part = await self._client.log(*log, offset=part.next_offset, limit=limit)
            start = part.next_offset - len(part.data)
            before, *found = part.data[: begin - start].rsplit(b"\n", missing)
            missing -= len(found)
            begin = start if missing else start + len(before) + 1
        return await self._client.log(*log, offset=begin)
