"""ONE server-sent stream for everything: jobs, and of followed jobs ranks, metrics and logs."""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from rekindle_service.api.feed import Feed, JobFeed, LogSubscription
from rekindle_service.api.lookup import find_job
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.schemas import Hello
from rekindle_service.api.services import Serving
from rekindle_service.store import StorageError

router = APIRouter(tags=["events"])

POLL_SECONDS = 0.3
_MOST_FOLLOWED = 16
_LOG = re.compile(r"(?:([a-z0-9]{10}):)?([0-9]{1,6}):(stdout|stderr)")
_VERSION = re.compile(r"[0-9]{1,18}")

Jobs = Annotated[list[str], Query(max_length=_MOST_FOLLOWED, description="Jobs to follow in depth")]
Logs = Annotated[
    list[str],
    Query(max_length=_MOST_FOLLOWED, description="`rank:stream` of the one followed job, or `job:rank:stream`"),
]


def make_feed(
    services: Serving,
    job: Jobs = [],  # noqa: B006 FastAPI copies defaults
    log: Logs = [],  # noqa: B006 FastAPI copies defaults
    last_event_id: Annotated[int | None, Query(ge=0, le=(1 << 63) - 1)] = None,
    last_event_id_header: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Feed:
    """The listener's feed, or ProblemError (404, 422) before a byte of the stream is sent."""
    for job_id in job:
        find_job(services, job_id)
    subscriptions = [_log_subscription(text, job) for text in log]
    feeds = [
        JobFeed(services, job_id, [wanted for owner, wanted in subscriptions if owner == job_id])
        for job_id in dict.fromkeys(job)
    ]
    if last_event_id is None and last_event_id_header is not None and _VERSION.fullmatch(last_event_id_header):
        last_event_id = int(last_event_id_header)
    return Feed(services, feeds, last_event_id)


def _log_subscription(text: str, jobs: list[str]) -> tuple[str, LogSubscription]:
    match = _LOG.fullmatch(text)
    job_id = None if match is None else match[1] or (jobs[0] if len(jobs) == 1 else None)
    if match is None or job_id not in jobs:
        error = {
            "field": "log",
            "rule": "must be rank:stdout or rank:stderr of the one followed job, or job:rank:stream of one of several",
            "value": text[:200],
            "hint": "the job itself must be followed with job=",
        }
        raise ProblemError(422, "invalid-request", f"log={text[:200]!r} names no log of a followed job", errors=[error])
    return job_id, LogSubscription(int(match[2]), match[3])


@router.get("/events", response_class=EventSourceResponse)
async def stream_events(services: Serving, feed: Annotated[Feed, Depends(make_feed)]) -> AsyncIterator[ServerSentEvent]:
    """Events `hello`, `job`, `deleted`, and of followed jobs `ranks`, `metrics`, `log`.

    The id of an event is the version of a job's row; after a lost connection `Last-Event-ID` (or `last_event_id`)
    brings every row that has changed since. What is followed in depth begins anew: fetch it after `hello`.
    """
    hello = Hello.model_validate({"version": feed.version, "server_started_at": services.started_at})
    yield ServerSentEvent(event="hello", data=hello)
    with suppress(StorageError):  # the listener connects again, and is then told what is wrong
        while not services.stopping.is_set():
            for event in await run_in_threadpool(feed.poll):
                yield event
            await anyio.sleep(POLL_SECONDS)
