"""Ranks of an attempt: how each is doing, its log and its live stack."""

import time
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from starlette.responses import StreamingResponse

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.control import ControlMessage, MessageType, notify
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankState
from rekindle.contract.run_dir.usage import UsageSample
from rekindle.contract.safe_open import open_beneath
from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.api.byte_range import UnsatisfiableRangeError, parse_range
from rekindle_service.api.lookup import AttemptNumber, KnownAttempt, KnownJob, KnownRank, KnownRunDir, find_attempt
from rekindle_service.api.pieces import WantedPiece
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.schemas import Page, RankPublic, RankUsagePublic, StackPublic
from rekindle_service.run_readers.logs import iter_bytes, read_chunk, size_of, tail_offset
from rekindle_service.run_readers.ranks import read_ranks
from rekindle_service.run_readers.stacks import stacks_size, wait_for_stack
from rekindle_service.run_readers.usage import latest_usage
from rekindle_service.store.tables import Job

router = APIRouter(tags=["ranks"])

_MOST_BYTES = 1 << 20
_STACK_TIMEOUT = 3.0  # seconds
_USAGE_HOLDS = 20.0  # seconds after a look at a rank in which it tells what the rank uses now
_TEXT = "text/plain; charset=utf-8"

Stream = Annotated[Literal["stdout", "stderr"], Query(description="Which output of the rank")]
Offset = Annotated[int | None, Query(ge=0, le=(1 << 63) - 1, description="First byte of the piece")]
Limit = Annotated[int, Query(ge=1, le=_MOST_BYTES, description="Most bytes of the piece")]
Tail = Annotated[int | None, Query(ge=0, le=1_000_000, description="The last so many lines, within `limit` bytes")]
RangeHeader = Annotated[str | None, Header(alias="Range", description="One range of raw bytes")]


def rank_rows(job: Job, run_dir: RunDir, facts: AttemptInfo) -> list[RankPublic]:
    """Every rank of an attempt as it is shown; no rank of a job that holds no slots runs."""
    over = job.state not in HOLDING_SLOTS
    rows = [RankPublic.model_validate(row) for row in read_ranks(run_dir, facts, over=over)]
    sample = None if over else latest_usage(run_dir.root, run_dir.attempt(facts.number).usage)
    if sample is not None and time.time() - sample.at < _USAGE_HOLDS:
        for row in rows:
            row.usage = _usage_of(row, sample)
    return rows


def _usage_of(row: RankPublic, sample: UsageSample) -> RankUsagePublic | None:
    """What a living rank uses now."""
    usage = sample.of_rank(row.rank)
    if usage is None or row.process_state is None:
        return None
    devices = sample.devices_of(row.rank)
    return RankUsagePublic(cpu_percent=usage.cpu_percent, rss_bytes=usage.rss_bytes, devices=devices)


@router.get("/jobs/{job_id}/ranks")
def list_ranks(
    job: KnownJob, run_dir: KnownRunDir, piece: WantedPiece, attempt: AttemptNumber = None
) -> Page[RankPublic]:
    """Every rank of an attempt (the latest unless told); none for a job that has not been launched yet."""
    if attempt is None and job.attempt == 0:
        return Page(items=[])
    rows, following = piece.of(rank_rows(job, run_dir, find_attempt(job, run_dir, attempt)), lambda row: row.rank)
    return Page(items=rows, next=following)


@router.get(
    "/jobs/{job_id}/ranks/{rank}/log",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, 206: {"content": {"text/plain": {}}}},
)
def read_log(
    run_dir: KnownRunDir,
    facts: KnownAttempt,
    rank: KnownRank,
    stream: Stream = "stdout",
    offset: Offset = None,
    limit: Limit = 64 * 1024,
    tail: Tail = None,
    byte_range: RangeHeader = None,
) -> Response:
    """A piece of a rank's output as text, by byte offset; `X-Offset` and `X-Next-Offset` tell where it lies.

    A piece ends between two characters, and bytes that are not UTF-8 come as `?`, so it has as many bytes as the part
    of the file that it stands for. With `Range` the bytes come raw. A log that is not there yet is an empty one.
    """
    if tail is not None and offset is not None:
        error = {"field": "tail", "rule": "must not be given together with offset", "value": tail, "hint": ""}
        raise ProblemError(422, "invalid-request", "tail and offset exclude each other", errors=[error])
    path = run_dir.attempt(facts.number).rank(rank).log(stream)
    if byte_range is not None and (answer := _raw_range(run_dir.root, path, byte_range)) is not None:
        return answer
    return _text_piece(run_dir.root, path, offset or 0, limit, tail)


def _text_piece(root: Path, path: Path, offset: int, limit: int, tail: int | None) -> Response:
    file = open_beneath(root, path)
    if file is None:
        _require_within(offset, 0)
        return _text("", 0, 0)
    with file:
        if tail is not None:
            offset = tail_offset(file, tail, limit)
        _require_within(offset, size_of(file))
        chunk = read_chunk(file, offset, limit)
    return _text(chunk.text, chunk.offset, chunk.next_offset)


def _text(text: str, offset: int, next_offset: int) -> Response:
    headers = {"X-Offset": str(offset), "X-Next-Offset": str(next_offset), "Accept-Ranges": "bytes"}
    return Response(text, headers=headers, media_type=_TEXT)


def _require_within(offset: int, size: int) -> None:
    if offset > size:
        raise ProblemError(
            416,
            "beyond-end",
            f"offset {offset} lies behind the end: the log has {size} bytes so far",
            headers={"Content-Range": f"bytes */{size}"},
        )


def _raw_range(root: Path, path: Path, header: str) -> Response | None:
    """The answer to a ``Range`` header, or None where it must be ignored. The body streams; memory stays flat."""
    file = open_beneath(root, path)
    size = 0 if file is None else size_of(file)
    try:
        span = parse_range(header, size)
    except UnsatisfiableRangeError:
        if file is not None:
            file.close()
        detail = f"the range {header[:100]!r} lies behind the end: the log has {size} bytes so far"
        raise ProblemError(416, "beyond-end", detail, headers={"Content-Range": f"bytes */{size}"}) from None
    if file is None or span is None:
        if file is not None:
            file.close()
        return None
    start, end = span
    headers = {
        "Content-Range": f"bytes {start}-{end - 1}/{size}",
        "Content-Length": str(end - start),
        "X-Next-Offset": str(end),
    }
    return StreamingResponse(iter_bytes(file, start, end), 206, headers, _TEXT)


@router.post("/jobs/{job_id}/ranks/{rank}/stack")
def read_stack(job: KnownJob, run_dir: KnownRunDir, facts: KnownAttempt, rank: KnownRank) -> StackPublic:
    """The Python stacks of all threads of a living rank, asked for through its keeper; takes a moment.

    Works while the rank hangs in a collective or holds the GIL. Only the latest attempt can be living.
    """
    row = next(row for row in rank_rows(job, run_dir, facts) if row.rank == rank)
    if row.state not in (RankState.STARTING, RankState.RUNNING):
        raise _no_stack(f"rank {rank} of attempt {facts.number} of job {job.id} does not run: it is {row.state}")
    path = run_dir.attempt(facts.number).rank(rank).stacks
    before = stacks_size(run_dir.root, path)
    if before is None:
        raise _no_stack(f"rank {rank} of job {job.id} has not got as far as its script yet")
    notify(run_dir, ControlMessage(MessageType.STACK, facts.number, rank))
    stack = wait_for_stack(run_dir.root, path, before, _STACK_TIMEOUT)
    if stack is None:
        raise _no_stack(
            f"rank {rank} of job {job.id} left no stack within {_STACK_TIMEOUT:g} s: the process is stopped, or its "
            "keeper is gone; GET …/ranks tells its state"
        )
    return StackPublic(attempt=facts.number, rank=rank, stack=stack)


def _no_stack(detail: str) -> ProblemError:
    return ProblemError(409, "no-stack", detail)
