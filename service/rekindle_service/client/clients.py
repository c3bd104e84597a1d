"""The two clients, for an event loop and for blocking calls, and following a job through restarts of the server."""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from copy import copy
from typing import Self

import httpx2

from rekindle_service.client.answers import Job
from rekindle_service.client.api_connection import TIMEOUT, Blocking, api_call, api_stream, drop_unset
from rekindle_service.client.calls import ApiCalls
from rekindle_service.client.client_errors import (
    RETRY_INTERVAL,
    NoServerError,
    OnConnectionChange,
    ProblemError,
    ReconnectPolicy,
)
from rekindle_service.client.discovery import Server
from rekindle_service.client.log_follower import LogFilter, LogFollower, LogItem, is_settled
from rekindle_service.client.transport import BlockingHttp, StreamEvent

_STREAM_TIMEOUT = 45.0  # seconds; the event stream sends something every 15
_POLL_INTERVAL = 0.5  # seconds


class FollowingCalls(ApiCalls):
    """``watch``, ``wait``, ``logs`` and ``events`` reconnect by themselves."""

    @api_stream
    async def watch(
        self, job_id: str, on_connection_change: OnConnectionChange | None = None
    ) -> AsyncGenerator[Job, None]:
        """Poll the job until it is settled: it has ended, or is held in the queue."""
        client = self.reconnecting(on_connection_change)
        while True:
            job = await client.job(job_id)
            yield job
            if is_settled(job):
                return
            await self.sleep(_POLL_INTERVAL)

    @api_call
    async def wait(self, job_id: str, on_connection_change: OnConnectionChange | None = None) -> Job:
        """The job once it is settled."""
        async for job in self.watch(job_id, on_connection_change):
            last = job
        return last

    @api_stream
    def logs(
        self,
        job_id: str,
        choice: LogFilter | None = None,
        *,
        follow: bool = False,
        on_connection_change: OnConnectionChange | None = None,
        on_job: Callable[[Job], None] | None = None,
    ) -> AsyncGenerator[LogItem, None]:
        """The output of the ranks, attempt by attempt; ``follow`` continues until the job is settled.

        ``on_job``: called with the job at each poll while following.
        """
        client = self.reconnecting(on_connection_change)
        return LogFollower(client, job_id, choice or LogFilter(), on_job).read(follow=follow)

    @api_stream
    async def events(
        self,
        jobs: Collection[str] = (),
        logs: Collection[str] = (),
        *,
        since: int | None = None,
        on_connection_change: OnConnectionChange | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """The server's endless event stream: rows of all jobs, and of ``jobs`` also ranks, metrics and ``logs``.

        After a restart of the server rows resume where they were; ranks, metrics and logs start again.
        """
        policy = ReconnectPolicy(on_connection_change)
        timeout = httpx2.Timeout(_STREAM_TIMEOUT, connect=5)
        while True:
            params = drop_unset(job=list(jobs), log=list(logs), last_event_id=since)
            try:
                async with aclosing(self._connection.events("/events", params=params, timeout=timeout)) as stream:
                    async for event in stream:
                        policy.on_success()
                        since = event.version or since
                        yield event
            except (NoServerError, ProblemError) as error:
                policy.on_error(error)
            await self.sleep(RETRY_INTERVAL)


class AsyncClient(FollowingCalls):
    """The client for asyncio and trio: await its methods, or read them with ``async for``."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Client(FollowingCalls, Blocking):
    """The same methods as ordinary functions and generators. Not thread-safe."""

    def __init__(self, locate: Callable[[], Server], timeout: float = TIMEOUT) -> None:
        self._client = AsyncClient(locate, timeout, BlockingHttp)

    def reconnecting(self, on_connection_change: OnConnectionChange | None = None) -> Self:
        """The same client over the same connection, but reads are retried while the server is unreachable."""
        client = copy(self)
        client._client = self._client.reconnecting(on_connection_change)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
