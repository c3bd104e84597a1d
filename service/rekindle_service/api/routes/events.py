"""One server-sent stream for everything: changes of all jobs, and ranks, metrics and logs of followed jobs."""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rekindle_service.api.dependencies import AppStateDep, readable_job
from rekindle_service.api.event_stream.feed import Feed, LogSubscription
from rekindle_service.api.permissions import IdentityDep
from rekindle_service.api.problem_details import ProblemError, invalid_field
from rekindle_service.api.worker_pools import EVENTS
from rekindle_service.schemas.job_json import Hello
from rekindle_service.store import StorageError

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


async def _count_listener(state: AppStateDep) -> AsyncIterator[None]:
    """A listener until its stream ends. Raises ProblemError (503) where there are too many."""
    if state.listeners.count >= _MAX_LISTENERS:
        detail = (
            f"{state.listeners.count} clients receive events, which is the maximum: close pages that nobody reads, or "
            "read GET /api/v1/jobs now and then instead"
        )
        raise ProblemError(503, "too-many-listeners", detail, headers={"Retry-After": "10"})
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
    last_event_id: Annotated[int | None, Query(ge=0, le=(1 << 63) - 1, description=_LAST_EVENT_ID)] = None,
    last_event_id_header: Annotated[str | None, Header(alias="Last-Event-ID", description=_LAST_EVENT_ID)] = None,
) -> Feed:
    """The feed of one client. Raises ProblemError (404, 422) before the stream has started."""
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
