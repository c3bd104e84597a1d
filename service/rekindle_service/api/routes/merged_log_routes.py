"""Lines of several logs in the order in which they came, and when those of one log came."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from rekindle.contract.run_dir.attempt_samples import LogName
from rekindle.contract.run_dir.paths import STREAMS
from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.api.dependencies import AttemptDep, JobDep, RankDep, RunDirDep, require_rank
from rekindle_service.api.problems import invalid_field
from rekindle_service.api.routes.log_routes import IsRegex, SearchText, Stream, StreamName, compile_regex
from rekindle_service.machine.monitor import evenly_spaced
from rekindle_service.run_readers.log_timeline import read_log_times
from rekindle_service.run_readers.merged_log import LinePage, LogLevel, MergedLog, Position, ReadLimits, TimedLine
from rekindle_service.run_readers.rank_rows import rank_numbers
from rekindle_service.schemas.rank_json import LogLines, LogTime, LogTimesPublic

router = APIRouter(tags=["logs"])

_MAX_POINTS = 5000
_MAX_OFFSET = (1 << 53) - 1

Cursor = Annotated[str | None, Query(max_length=100)]


class _Filter:
    """Which lines are shown."""

    def __init__(
        self,
        level: Annotated[
            LogLevel, Query(description="Only lines of this level or a more serious one")
        ] = LogLevel.DEBUG,
        q: Annotated[SearchText | None, Query(description="Only lines with this text")] = None,
        regex: IsRegex = False,
    ) -> None:
        self._level = level
        self._matches = None if q is None else compile_regex(q) if regex else partial(_contains, query=q)

    def accept(self, line: TimedLine) -> bool:
        return self._level.includes(line.level) and (self._matches is None or self._matches(line.text))


def _contains(text: str, query: str) -> bool:
    """A query without a capital letter finds capitals, too."""
    return query in (text.lower() if query == query.lower() else text)


@router.get("/jobs/{job_id}/log")
def read_lines(
    job: JobDep,
    run_dir: RunDirDep,
    attempt: AttemptDep,
    chosen: Annotated[_Filter, Depends()],
    rank: Annotated[list[int] | None, Query(max_length=4096, description="Only these ranks")] = None,
    stream: Annotated[StreamName | None, Query(description="Only this output")] = None,
    after: Annotated[Cursor, Query(description="`next` of another answer: the lines that follow it")] = None,
    before: Annotated[Cursor, Query(description="`previous` of another answer, or `end`: the lines before it")] = None,
    at: Annotated[
        float | None, Query(ge=0, le=1e11, description="The lines since then, seconds since the epoch")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=2000, description="Maximum number of lines")] = 500,
) -> LogLines:
    """Read lines of all ranks and both streams in the order in which they came, from the beginning or any position.

    One request takes at most half a second: an answer that is not complete may have fewer lines than `limit`, or none,
    where a filter finds few.
    """
    if sum(each is not None for each in (after, before, at)) > 1:
        raise invalid_field("at", "only one of after, before and at is possible", at, "several positions were given")
    ended, limits = attempt.ended_at is not None or job.state not in HOLDING_SLOTS, ReadLimits(limit)
    ranks = rank_numbers(run_dir, attempt)
    if rank is not None:
        require_rank(job, attempt, ranks, rank)
        ranks = [each for each in ranks if each in rank]
    logs = [LogName(number, name) for number in ranks for name in (STREAMS if stream is None else (stream,))]
    with MergedLog(run_dir, attempt, logs, over=ended) as log:
        if before is not None:
            page = log.before(None if before == "end" else _position("before", before), limits, chosen.accept)
        elif at is not None:
            page = log.since(at, limits, chosen.accept)
        else:
            page = log.after(None if after is None else _position("after", after), limits, chosen.accept)
        is_at_end = before == "end" or (before is None and page.complete)
        unfinished = [line for line in log.unfinished() if chosen.accept(line)] if is_at_end else []
        return _answer(page, attempt.number, ended=ended, has_times=log.has_times, unfinished=unfinished)


def _answer(page: LinePage, attempt: int, *, ended: bool, has_times: bool, unfinished: list[TimedLine]) -> LogLines:
    return LogLines(
        attempt=attempt,
        items=page.lines,
        next=_cursor(page.next),
        previous=_cursor(page.previous),
        complete=page.complete,
        ended=ended,
        has_times=has_times,
        unfinished=unfinished,
    )


def _cursor(position: Position | None) -> str | None:
    return None if position is None else str(position)


def _position(name: str, text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError:
        rule = "must be `next` or `previous` of another answer"
        raise invalid_field(name, rule, text, f"{name} {rule}") from None


@router.get("/jobs/{job_id}/ranks/{rank}/log/times")
def read_times(
    run_dir: RunDirDep,
    attempt: AttemptDep,
    rank: RankDep,
    stream: Stream = "stdout",
    start: Annotated[int, Query(alias="from", ge=0, le=_MAX_OFFSET, description="First byte")] = 0,
    end: Annotated[int, Query(alias="to", ge=0, le=_MAX_OFFSET, description="Byte after the last one")] = _MAX_OFFSET,
) -> LogTimesPublic:
    """When the bytes of a log came, accurate to a quarter of a second; of many times 5,000 are chosen."""
    points = read_log_times(run_dir, attempt).history(LogName(rank, stream), start, end)
    items = [LogTime(point) for point in evenly_spaced(points, _MAX_POINTS)]
    return LogTimesPublic(attempt=attempt.number, rank=rank, stream=stream, items=items)
