"""Requests over a connection that is made again, and methods that one client awaits and the other blocks in."""

import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from copy import copy
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import httpx2

from rekindle_service.client.client_errors import (
    RETRY_INTERVAL,
    NoServerError,
    OnConnectionChange,
    ProblemError,
    ReconnectPolicy,
)
from rekindle_service.client.discovery import Server, find_server
from rekindle_service.client.transport import AsyncHttp, HttpType, ServerConnection
from rekindle_service.config.client_settings import ClientSettings

TIMEOUT = 30.0  # seconds for the next byte of an answer
LONG_TIMEOUT = 300.0  # seconds, where the server copies code or changes thousands of jobs before it answers

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


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


class Blocking:
    """Base of the client whose methods return results: the coroutines of ``_client`` never suspend."""

    _client: "ApiConnection"


class BothWays(Generic[P, A, B]):
    """A method of the asynchronous client that returns A, and of the blocking one that returns B."""

    def __init__(self, method: Callable[Concatenate[Any, P], A], finish: Callable[[A], B]) -> None:
        @wraps(method)
        def blocking(client: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> B:
            return finish(method(client._client, *args, **kwargs))

        self._method, self._blocking = method, blocking

    @overload
    def __get__(self, client: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], B]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, B]: ...
    @overload
    def __get__(self, client: "ApiConnection", owner: type) -> Callable[P, A]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        method: Any = self._blocking if issubclass(owner, Blocking) else self._method
        return method.__get__(client, owner)


def api_call(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> BothWays[P, Coroutine[Any, Any, T], T]:
    """A coroutine method, which the blocking client runs to its end."""
    return BothWays(method, run)


def api_stream(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> BothWays[P, AsyncGenerator[T, None], Generator[T, None, None]]:
    """A method that is an asynchronous generator, and an ordinary one of the blocking client."""
    return BothWays(method, iterate)


class ApiConnection:
    """Every request may raise ProblemError and NoServerError. Use one client in one task at a time.

    A restarted server may have another port, so it is located again after a lost connection: repeating a read that
    raised NoServerError can succeed.
    """

    def __init__(self, locate: Callable[[], Server], timeout: float = TIMEOUT, http: HttpType = AsyncHttp) -> None:
        self._connection, self.sleep = ServerConnection(locate, timeout, http), http.sleep
        self._reconnect: ReconnectPolicy | None = None

    @classmethod
    def from_home(cls, settings: ClientSettings | None = None, timeout: float = TIMEOUT) -> Self:
        """A client of the server that ``REKINDLE_URL`` or the home of this machine names."""
        return cls(lambda: find_server(settings or ClientSettings()), timeout)

    def reconnecting(self, on_connection_change: OnConnectionChange | None = None) -> Self:
        """The same client over the same connection, but reads are retried while the server is unreachable.

        The first read is not: a server that never answered is an error.
        """
        client = copy(self)
        client._reconnect = ReconnectPolicy(on_connection_change)
        return client

    @api_call
    async def close(self) -> None:
        """Close the connections; the client cannot be used any more."""
        await self._connection.close()

    @api_call
    async def request(self, method: str, path: str, /, **options: Any) -> Any:
        """Any other request below ``/api/v1``; returns the JSON of the answer, None where it is empty.

        ``options`` are those of httpx2's ``request``, such as ``json`` and ``params``.
        """
        response = await self._send(method, path, **options)
        return response.json() if response.content else None

    async def _get(self, path: str, **params: Any) -> Any:
        return await self.request("GET", path, params=drop_unset(**params))

    async def _items(self, path: str, **params: Any) -> Any:
        """A list that the server sends on one page."""
        return (await self._get(path, **params))["items"]

    async def _create(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return await self.request("POST", path, json=body, headers=headers, timeout=LONG_TIMEOUT, repeatable=True)

    async def _send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        policy = self._reconnect if method == "GET" else None
        if policy is None:
            return await self._connection.send(method, path, **options)
        while True:
            try:
                response = await self._connection.send(method, path, **options)
            except (NoServerError, ProblemError) as error:
                policy.on_error(error)
                await self.sleep(RETRY_INTERVAL)
            else:
                policy.on_success()
                return response


def drop_unset(**values: Any) -> dict[str, Any]:
    """The values that were given; the server has the default of every other."""
    return {name: value for name, value in values.items() if value not in (None, [], (), {})}
