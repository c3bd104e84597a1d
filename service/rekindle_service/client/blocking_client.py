"""The blocking client, made from the asynchronous one: its coroutines never suspend over ``BlockingHttp``."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from copy import copy
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rekindle_service.client.api_connection import TIMEOUT
from rekindle_service.client.async_client import AsyncClient
from rekindle_service.client.discovery import Server, find_server
from rekindle_service.client.reconnect import OnConnectionChange
from rekindle_service.client.transport import BlockingHttp
from rekindle_service.config.client_settings import ClientSettings

P = ParamSpec("P")
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError(f"{coroutine} waits for an event loop")


def iterate(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """The items of an asynchronous generator that never suspends."""
    try:
        while True:
            try:
                item = run(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Client", P], T]:
    @wraps(method)
    def call(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._client, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate["Client", P], Generator[T, None, None]]:
    @wraps(method)
    def call(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return iterate(method(self._client, *args, **kwargs))

    return call


class Client:
    """The methods of ``AsyncClient``, which documents them, as ordinary functions and generators. Not thread-safe."""

    def __init__(self, locate: Callable[[], Server], timeout: float = TIMEOUT) -> None:
        self._client = AsyncClient(locate, timeout, BlockingHttp)

    @classmethod
    def from_home(cls, settings: ClientSettings | None = None, timeout: float = TIMEOUT) -> Self:
        """A client of the server that ``REKINDLE_URL`` or the home of this machine names."""
        return cls(lambda: find_server(settings or ClientSettings()), timeout)

    def reconnecting(self, on_connection_change: OnConnectionChange | None = None) -> Self:
        """The same client over the same connection, but reads are retried while the server is unreachable."""
        client = copy(self)
        client._client = self._client.reconnecting(on_connection_change)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    close = _blocking(AsyncClient.close)

    submit = _blocking(AsyncClient.submit)
    validate = _blocking(AsyncClient.validate)
    upload_bundle = _blocking(AsyncClient.upload_bundle)
    job = _blocking(AsyncClient.job)
    find_job = _blocking(AsyncClient.find_job)
    complete_job = _blocking(AsyncClient.complete_job)
    jobs = _iterating(AsyncClient.jobs)
    cancel = _blocking(AsyncClient.cancel)
    drain = _blocking(AsyncClient.drain)
    resume = _blocking(AsyncClient.resume)
    delete = _blocking(AsyncClient.delete)
    inject = _blocking(AsyncClient.inject)
    queue = _blocking(AsyncClient.queue)
    overview = _blocking(AsyncClient.overview)
    devices = _blocking(AsyncClient.devices)
    disable_device = _blocking(AsyncClient.disable_device)
    enable_device = _blocking(AsyncClient.enable_device)
    disk_usage = _blocking(AsyncClient.disk_usage)
    prune = _blocking(AsyncClient.prune)

    attempts = _blocking(AsyncClient.attempts)
    time_breakdown = _blocking(AsyncClient.time_breakdown)
    story = _blocking(AsyncClient.story)
    configuration = _blocking(AsyncClient.configuration)
    ranks = _blocking(AsyncClient.ranks)
    stack = _blocking(AsyncClient.stack)
    snapshots = _blocking(AsyncClient.snapshots)
    metrics = _blocking(AsyncClient.metrics)
    job_events = _blocking(AsyncClient.job_events)
    log_lines = _blocking(AsyncClient.log_lines)
    log = _blocking(AsyncClient.log)
    log_tail = _blocking(AsyncClient.log_tail)

    watch = _iterating(AsyncClient.watch)
    wait = _blocking(AsyncClient.wait)
    logs = _iterating(AsyncClient.logs)
    events = _iterating(AsyncClient.events)

    me = _blocking(AsyncClient.me)
    tokens = _blocking(AsyncClient.tokens)
    create_token = _blocking(AsyncClient.create_token)
    revoke_token = _blocking(AsyncClient.revoke_token)
    audit = _blocking(AsyncClient.audit)

    submit_experiment = _blocking(AsyncClient.submit_experiment)
    experiment = _blocking(AsyncClient.experiment)
    best_result = _blocking(AsyncClient.best_result)
    experiments = _blocking(AsyncClient.experiments)
    find_experiment = _blocking(AsyncClient.find_experiment)
    builtin_experiments = _blocking(AsyncClient.builtin_experiments)
    cancel_experiment = _blocking(AsyncClient.cancel_experiment)
    resume_experiment = _blocking(AsyncClient.resume_experiment)
    delete_experiment = _blocking(AsyncClient.delete_experiment)

    request = _blocking(AsyncClient.request)
