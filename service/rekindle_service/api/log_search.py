"""Search in the logs of a job, where they lie: no browser has to fetch a gigabyte to find a word."""

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import open_beneath
from rekindle_service.api.lookup import KnownAttempt, KnownRank, KnownRunDir
from rekindle_service.api.pieces import WantedPiece
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.ranks import Stream
from rekindle_service.api.schemas import LogMatch, LogMatches, Page, RankMatches
from rekindle_service.run_readers.log_search import SearchLimits, SearchPage, search
from rekindle_service.run_readers.ranks import STREAMS, rank_numbers

router = APIRouter(tags=["ranks"])

_SECONDS = 0.5

Wanted = Annotated[
    str, StringConstraints(min_length=1, max_length=200), Query(description="Text; without capitals it finds both")
]
Start = Annotated[int | None, Query(alias="from", ge=0, le=(1 << 63) - 1, description="Byte to begin at")]
Most = Annotated[int, Query(ge=1, le=1000, description="Most matches of one answer")]


@router.get("/jobs/{job_id}/ranks/{rank}/log/search")
def search_log(
    run_dir: KnownRunDir,
    facts: KnownAttempt,
    rank: KnownRank,
    q: Wanted,
    stream: Stream = "stdout",
    start: Start = None,
    backwards: Annotated[bool, Query(description="Towards the beginning, from the end unless `from` is given")] = False,
    limit: Most = 100,
) -> LogMatches:
    """Where a text stands in a rank's log, by byte offset.

    One call takes at most half a second, and searches at most 256 MiB: `next` tells where to go on, null when done.
    """
    default = (1 << 63) - 1 if backwards else 0
    file = open_beneath(run_dir.root, run_dir.attempt(facts.number).rank(rank).log(stream))
    if file is None:
        return LogMatches(items=[], next=None, size=0)
    with file:
        limits = SearchLimits(matches=limit, seconds=_SECONDS)
        found = search(file, _bytes(q), default if start is None else start, backwards=backwards, limits=limits)
    return LogMatches(items=_public(found), next=found.next, size=found.size)


@router.get("/jobs/{job_id}/logs/search")
def search_logs(
    run_dir: KnownRunDir,
    facts: KnownAttempt,
    q: Wanted,
    piece: WantedPiece,
    stream: Annotated[Literal["stdout", "stderr"] | None, Query(description="Only this output")] = None,
) -> Page[RankMatches]:
    """In which logs of an attempt a text stands, rank by rank: how often, up to 100 times, and where first.

    Takes at most half a second altogether: `complete` is false for a log that was searched only in part.
    """
    deadline = time.monotonic() + _SECONDS
    streams = STREAMS if stream is None else (stream,)
    logs = [(rank, name) for rank in rank_numbers(run_dir, facts) for name in streams]
    found = [_in_log(run_dir, facts, rank, name, _bytes(q), deadline) for rank, name in logs]
    told, following = piece.of([matches for matches in found if matches is not None])
    return Page(items=told, next=following)


def _in_log(
    run_dir: RunDir, facts: AttemptInfo, rank: int, stream: str, query: bytes, deadline: float
) -> RankMatches | None:
    """None where there is nothing to tell: no log, or it was searched to its end in vain."""
    file = open_beneath(run_dir.root, run_dir.attempt(facts.number).rank(rank).log(stream))
    if file is None:
        return None
    with file:
        limits = SearchLimits(seconds=max(deadline - time.monotonic(), 0))
        found = search(file, query, 0, backwards=False, limits=limits)
    if not found.matches and found.next is None:
        return None
    first = next(iter(_public(found)), None)
    complete = found.next is None
    return RankMatches(rank=rank, stream=stream, count=len(found.matches), complete=complete, first=first)


def _bytes(query: str) -> bytes:
    try:
        return query.encode()
    except UnicodeEncodeError as error:
        problem = {"field": "q", "rule": "must be text of whole characters", "value": query, "hint": ""}
        raise ProblemError(422, "invalid-request", "q holds half a surrogate pair", errors=[problem]) from error


def _public(found: SearchPage) -> list[LogMatch]:
    return [LogMatch.model_validate(match) for match in found.matches]
