"""Logs of the ranks: read by byte offset, search on the server, download."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import StringConstraints

from rekindle.contract.run_dir.paths import STREAMS, RunDir
from rekindle_service.api.dependencies import (
    AttemptDep,
    AttemptsDep,
    ChosenAttempt,
    JobDep,
    RankDep,
    RunDirDep,
    require_rank,
)
from rekindle_service.api.downloads import ZIP, Download, attachment
from rekindle_service.api.pagination import MAX, PageParamsDep, paginate
from rekindle_service.api.problems import PROBLEM_CONTENT, ApiError, invalid_field
from rekindle_service.run_readers.log_files import (
    Span,
    hole_at,
    iter_bytes,
    line_number,
    open_or_empty,
    read_bytes,
    read_chunk,
    size_of,
    span_at,
    tail_offset,
    total_size,
    without_holes,
)
from rekindle_service.run_readers.log_search import (
    RegexError,
    SearchLimits,
    SearchPage,
    Wanted,
    line_matcher,
    search,
)
from rekindle_service.run_readers.rank_rows import rank_numbers
from rekindle_service.run_readers.zip_stream import Member, zip_stream
from rekindle_service.schemas.rank_json import AttemptMatches, LogMatches, RankMatches

router = APIRouter(tags=["logs"])

_TEXT = "text/plain; charset=utf-8"
_RAW = "application/octet-stream"
_MAX_BYTES = 1 << 20
_SEARCH_SECONDS = 0.5

StreamName = Literal["stdout", "stderr"]
Stream = Annotated[StreamName, Query(description="Output of the rank")]
Offset = Annotated[int | None, Query(ge=0, le=MAX, description="First byte")]
Limit = Annotated[int, Query(ge=1, le=_MAX_BYTES, description="Maximum number of bytes")]
Tail = Annotated[int | None, Query(ge=0, le=1_000_000, description="Number of last lines, within `limit` bytes")]
Raw = Annotated[bool, Query(description="Bytes as they were written (default: text)")]
RangeHeader = Annotated[str | None, Header(alias="Range", description="One range of raw bytes")]
SearchText = Annotated[
    str, StringConstraints(min_length=1, max_length=200), Query(description="Text; ignores case if it has no capitals")
]
IsRegex = Annotated[bool, Query(description="Take `q` as a regular expression in the syntax of RE2 (default: as text)")]
_SINGLE_RANGE = re.compile(r"bytes=\s*(?:(\d{1,18})-(\d{1,18})?|-(\d{1,18}))\s*", re.ASCII | re.IGNORECASE)


@router.get(
    "/jobs/{job_id}/ranks/{rank}/log",
    response_class=Response,
    responses={
        200: {"description": "A chunk of the log", "content": {"text/plain": {}}},
        206: {"description": "The requested range of raw bytes", "content": {"text/plain": {}}},
        416: {"description": "The offset or range starts after the end of the log", "content": PROBLEM_CONTENT},
    },
)
def read_log(
    run_dir: RunDirDep,
    attempt: AttemptDep,
    rank: RankDep,
    stream: Stream = "stdout",
    offset: Offset = None,
    limit: Limit = 64 * 1024,
    tail: Tail = None,
    raw: Raw = False,
    byte_range: RangeHeader = None,
) -> Response:
    """Read a chunk of a rank's log as text, by byte offset; `X-Offset` and `X-Next-Offset` give its position.

    `X-Line` is the number of its first line, from 1; absent where it is not known, such as after a removed part.

    Of a log larger than the setting `log_bytes` the middle is removed, and offsets stay: a chunk that would begin there
    begins after it, at `X-Offset`, and `X-Removed-From` is where the removed part begins.
    A chunk ends between two characters. Bytes that are not UTF-8 are replaced by `?`, so a chunk has as many bytes as
    its part of the file. With `raw` or `Range` they are returned unchanged. A log that does not exist yet is empty.
    """
    if tail is not None and offset is not None:
        raise invalid_field("tail", "cannot be combined with offset", tail, "tail and offset cannot be combined")
    with ExitStack() as stack:
        file = stack.enter_context(_open_log(run_dir, attempt.number, rank, stream))
        if byte_range is None or (response := _raw_range(file, byte_range)) is None:
            response = _chunk(file, offset or 0, limit, tail, raw=raw)
            path, begin = _log_path(run_dir, attempt.number, rank, stream), int(response.headers["X-Offset"])
            if (number := line_number(path, file, begin)) is not None:
                response.headers["X-Line"] = str(number)
            return response
        stack.pop_all()  # the response closes the file
        return response


def _log_path(run_dir: RunDir, attempt: int, rank: int, stream: str) -> Path:
    return run_dir.attempt(attempt).rank(rank).log(stream)


def _open_log(run_dir: RunDir, attempt: int, rank: int, stream: str) -> BinaryIO:
    return open_or_empty(run_dir.root, _log_path(run_dir, attempt, rank, stream))


def _chunk(file: BinaryIO, offset: int, limit: int, tail: int | None, *, raw: bool) -> Response:
    if tail is not None:
        offset = tail_offset(file, tail, limit)
    if offset > (size := size_of(file)):
        raise _beyond_end(f"offset {offset}", size)
    hole = hole_at(file, offset)
    if raw:
        start, content = read_bytes(file, offset, limit)
    else:
        chunk = read_chunk(file, offset, limit)
        start, content = chunk.offset, chunk.text.encode()
    headers = {"X-Offset": str(start), "X-Next-Offset": str(start + len(content)), "Accept-Ranges": "bytes"}
    if hole is not None:
        headers["X-Removed-From"] = str(hole.start)
    return Response(content, headers=headers, media_type=_TEXT)


def _raw_range(file: BinaryIO, header: str) -> Response | None:
    """The response to a ``Range`` header, None where it must be ignored. The body is streamed: memory stays flat."""
    size = size_of(file)
    span = parse_range(header, size)
    if span is None:
        return None
    part = span_at(file, span[0])
    if part is None or part.start >= span[1]:
        raise _removed(header, size, part)
    start, end = part.start, min(part.end, span[1])
    headers = {
        "Content-Range": f"bytes {start}-{end - 1}/{size}",
        "X-Next-Offset": str(end),
    }
    return Download(iter_bytes(file, [Span(start, end)]), _TEXT, headers=headers, length=end - start, status_code=206)


def _removed(header: str, size: int, following: Span | None) -> ApiError:
    rest = "nothing follows" if following is None else f"the next byte that is left is {following.start}"
    detail = f"the range {header[:100]!r} was removed, since the log was larger than log_bytes; {rest}"
    return ApiError(416, "removed", detail, headers={"Content-Range": f"bytes */{size}"})


def _beyond_end(position: str, size: int) -> ApiError:
    detail = f"{position} is after the end: the log has {size} bytes so far"
    return ApiError(416, "beyond-end", detail, headers={"Content-Range": f"bytes */{size}"})


@router.get("/jobs/{job_id}/ranks/{rank}/log/search")
def search_log(
    run_dir: RunDirDep,
    attempt: AttemptDep,
    rank: RankDep,
    q: SearchText,
    stream: Stream = "stdout",
    start: Annotated[int | None, Query(alias="from", ge=0, le=MAX, description="Byte to start at")] = None,
    backwards: Annotated[bool, Query(description="Search towards the beginning, by default from the end")] = False,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of matches")] = 100,
    regex: IsRegex = False,
) -> SearchPage:
    """Search a log; the matches are byte offsets.

    One request takes at most half a second and searches at most 256 MiB: `next` is the byte at which to continue, null
    when the search is complete. With `regex` a match is the beginning of a line, which has ended.
    """
    default = MAX if backwards else 0
    limits = SearchLimits(matches=limit, seconds=_SEARCH_SECONDS)
    begin = default if start is None else start
    with _open_log(run_dir, attempt.number, rank, stream) as file:
        return search(file, _wanted(q, regex=regex), begin, backwards=backwards, limits=limits)


def _wanted(q: str, *, regex: bool) -> Wanted:
    """Raises ApiError (422)."""
    return compile_regex(q) if regex else _encode(q)


def compile_regex(query: str) -> Callable[[str], bool]:
    """What a line with a match fulfils. Raises ApiError (422)."""
    _encode(query)
    try:
        return line_matcher(query)
    except RegexError as error:
        raise invalid_field("q", "must be a regular expression", query, f"not a regular expression: {error}") from None


@router.get("/jobs/{job_id}/logs/search")
def search_logs(
    job: JobDep,
    run_dir: RunDirDep,
    attempts: AttemptsDep,
    q: SearchText,
    params: PageParamsDep,
    stream: Annotated[StreamName | None, Query(description="Only this output")] = None,
    rank: Annotated[int | None, Query(ge=0, le=1 << 31, description="Only this rank")] = None,
    regex: IsRegex = False,
    attempt: ChosenAttempt = None,
) -> LogMatches:
    """Search all logs of a job, latest attempt first, or of one attempt: matches by log, and their number by attempt.

    Of each log at most 100 matches are counted, and one request takes at most half a second: `complete` is false for a
    log or an attempt that was searched only in part. With `regex` lines are counted.
    """
    deadline = time.monotonic() + _SEARCH_SECONDS
    wanted, streams = _wanted(q, regex=regex), STREAMS if stream is None else (stream,)
    items: list[RankMatches] = []
    searched: list[AttemptMatches] = []
    latest_number = attempts.number(attempt)
    ranks = {number: run_dir.attempt(number).rank_numbers() for number in reversed(attempts.chosen(attempt))}
    if rank is not None and not any(rank in each for each in ranks.values()):
        latest = attempts.find(latest_number)
        require_rank(job, latest, rank_numbers(run_dir, latest), [rank])
    for each in ranks:
        found: list[RankMatches] = []
        if complete := time.monotonic() < deadline:
            logs = [(number, name) for number in ranks[each] if rank in (None, number) for name in streams]
            matching = [_search_rank(run_dir, each, number, name, wanted, deadline) for number, name in logs]
            found = [matches for matches in matching if matches is not None]
            complete = all(matches.complete for matches in found)
        items += found
        count = sum(matches.count for matches in found)
        searched.append(AttemptMatches(attempt=each, count=count, complete=complete))
    page = paginate(items, params)
    return LogMatches(items=page.items, next=page.next, attempts=searched)


def _search_rank(
    run_dir: RunDir, attempt: int, rank: int, stream: str, wanted: Wanted, deadline: float
) -> RankMatches | None:
    """None where there is no log, or it was searched to its end without a match."""
    limits = SearchLimits(seconds=max(deadline - time.monotonic(), 0))
    with _open_log(run_dir, attempt, rank, stream) as file:
        found = search(file, wanted, 0, backwards=False, limits=limits)
    if not found.items and found.next is None:
        return None
    return RankMatches(
        attempt=attempt,
        rank=rank,
        stream=stream,
        count=len(found.items),
        complete=found.next is None,
        first=next(iter(found.items), None),
    )


def _encode(query: str) -> bytes:
    try:
        return query.encode()
    except UnicodeEncodeError as error:
        raise invalid_field("q", "must be valid Unicode", query, "q contains an unpaired surrogate") from error


@router.get("/jobs/{job_id}/ranks/{rank}/log/file", response_class=Response, responses={200: {"content": {_RAW: {}}}})
def download_log(
    job: JobDep, run_dir: RunDirDep, attempt: AttemptDep, rank: RankDep, stream: Stream = "stdout"
) -> Response:
    """Download a rank's log as a file, byte by byte as it was written; a line is in place of what was removed of it."""
    headers = attachment(f"job-{job.number}-attempt-{attempt.number}-rank-{rank}-{stream}.log")
    file = _open_log(run_dir, attempt.number, rank, stream)
    parts = list(without_holes(file))
    return Download(iter_bytes(file, parts), _RAW, headers=headers, length=total_size(parts))


@router.get("/jobs/{job_id}/logs.zip", response_class=Response, responses={200: {"content": {ZIP: {}}}})
def download_logs(job: JobDep, run_dir: RunDirDep, attempts: AttemptsDep, attempt: ChosenAttempt = None) -> Response:
    """Download all logs of a job, or of one attempt: those of the ranks, of torchrun's agents and of the keeper."""
    archive = zip_stream(run_dir.root, _log_files(run_dir, attempts.chosen(attempt)), compress=True)
    return Download(archive, ZIP, headers=attachment(f"job-{job.number}-logs.zip"))


def _log_files(run_dir: RunDir, attempts: list[int]) -> Iterator[Member]:
    yield Member("keeper.log", run_dir.keeper_log)
    for attempt in attempts:
        directory = f"attempt-{attempt}"
        yield Member(f"{directory}/agent.log", run_dir.attempt(attempt).agent_log)
        for rank in run_dir.attempt(attempt).rank_numbers():
            for stream in STREAMS:
                yield Member(f"{directory}/rank-{rank}/{stream}.log", _log_path(run_dir, attempt, rank, stream))


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """The first byte and the byte after the last one; None where the header must be ignored.

    Several ranges, other units and invalid syntax are ignored: the response is then the ordinary one. Raises
    ApiError (416).
    """
    match = _SINGLE_RANGE.fullmatch(header)
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, end = max(size - int(suffix), 0), size
    else:
        start, end = int(first), size if last is None else min(int(last) + 1, size)
        if last is not None and int(last) < start:
            return None
    if start >= end:
        raise _beyond_end(f"the range {header[:100]!r}", size)
    return start, end
