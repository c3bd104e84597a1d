"""Requests of the API over a connection that is made again, and retries of reads through a restart of the server."""

import uuid
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import httpx2

from rekindle_service.client.discovery import Server, find_server
from rekindle_service.client.errors import NoServerError, ProblemError
from rekindle_service.client.reconnect import RETRY_INTERVAL, OnConnectionChange, ReconnectPolicy
from rekindle_service.client.transport import AsyncHttp, Connection, HttpType
from rekindle_service.config.client_settings import ClientSettings

TIMEOUT = 30.0  # seconds for the next byte of an answer
LONG_TIMEOUT = 300.0  # seconds, where the server copies code or changes thousands of jobs before it answers


class ApiConnection:
    """Every request may raise ProblemError and NoServerError. Use one client in one task at a time.

    A restarted server may have another port, so it is located again after a lost connection: repeating a read that
    raised NoServerError can succeed.
    """

    def __init__(self, locate: Callable[[], Server], timeout: float = TIMEOUT, http: HttpType = AsyncHttp) -> None:
        self._connection, self.sleep = Connection(locate, timeout, http), http.sleep
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the client cannot be used any more."""
        await self._connection.close()

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
