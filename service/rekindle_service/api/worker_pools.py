"""Threads of their own for slow routes, so that none of them can keep all other routes waiting.

Routes that are no coroutines share 40 threads. A submission that waits for a git host, or an upload that is being
unpacked, holds its thread for minutes.
"""

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

from rekindle_service.api.problems import ApiError

P = ParamSpec("P")
T = TypeVar("T")


class WorkerPool:
    """Runs ``threads`` calls at a time; ``waiting`` more wait for a thread, and the next is refused."""

    def __init__(self, purpose: str, *, threads: int, waiting: int) -> None:
        self._purpose = purpose
        self._waiting = waiting
        self._limiter = anyio.CapacityLimiter(threads)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``function`` returns or raises. Raises ApiError (503) where too many calls are waiting already."""
        waiting = self._limiter.statistics().tasks_waiting
        if waiting >= self._waiting:
            detail = f"the server is busy with {self._purpose}, and {waiting} more requests are waiting: try again"
            raise ApiError(503, "busy", detail, headers={"Retry-After": "10"})
        return await anyio.to_thread.run_sync(partial(function, *args, **kwargs), limiter=self._limiter)

    def route(self, function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
        """Decorates the function of a route, which then runs in this pool."""

        @wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.run(function, *args, **kwargs)

        return run


SUBMISSIONS = WorkerPool("submissions", threads=12, waiting=100)
UPLOADS = WorkerPool("uploads", threads=4, waiting=100)
DIGESTS = WorkerPool("comparisons of jobs", threads=2, waiting=100)
CHECKS = WorkerPool("health checks", threads=2, waiting=100)
EVENTS = WorkerPool("event streams", threads=4, waiting=10_000)
