"""HTTP to one server that is located again after a lost connection, for an event loop or blocking."""

import json
import os
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import httpx2

from rekindle_service.client.client_errors import RETRY_INTERVAL, NoServerError, ProblemError, rejection
from rekindle_service.client.discovery import Server

_CHUNK = 1 << 20  # bytes of an upload


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One message of the server's event stream.

    ``kind``: hello, job, deleted, and of followed jobs ranks, metrics and log; ``data`` is the JSON of that kind.
    ``version``: the stream resumes after this event with ``since=version``; None where it cannot.
    """

    kind: str
    data: dict[str, Any]
    version: int | None


class AsyncHttp:
    """HTTP in an event loop of asyncio or trio."""

    def __init__(self, server: Server, timeout: float) -> None:
        path = server.socket
        transport = None if path is None else httpx2.AsyncHTTPTransport(uds=os.fspath(path), verify=False)
        self._http = httpx2.AsyncClient(**server.http_options(timeout), transport=transport)

    async def request(
        self, method: str, url: str, *, upload: BinaryIO | None = None, **options: Any
    ) -> httpx2.Response:
        content = None if upload is None else self._chunks(upload)
        return await self._http.request(method, url, content=content, **options)

    async def events(self, url: str, **options: Any) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        async with self._http.stream("GET", url, **options) as response:
            if response.is_error:
                await response.aread()
                raise rejection(response)
            async for event in httpx2.EventSource(response):
                yield event

    async def close(self) -> None:
        await self._http.aclose()

    @staticmethod
    async def sleep(seconds: float) -> None:
        import anyio  # imported on use: the command line starts without an event loop

        await anyio.sleep(seconds)

    @staticmethod
    async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
        """The rest of ``file``, read in a thread so that the event loop continues."""
        import anyio.to_thread

        while chunk := await anyio.to_thread.run_sync(file.read, _CHUNK):
            yield chunk


class BlockingHttp:
    """The same coroutines for blocking use: they block the thread and never suspend, so they need no event loop."""

    def __init__(self, server: Server, timeout: float) -> None:
        self._http = httpx2.Client(**server.http_options(timeout), transport=_unix_transport(server))

    async def request(
        self, method: str, url: str, *, upload: BinaryIO | None = None, **options: Any
    ) -> httpx2.Response:
        return self._http.request(method, url, content=upload, **options)

    async def events(self, url: str, **options: Any) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        with self._http.stream("GET", url, **options) as response:
            if response.is_error:
                response.read()
                raise rejection(response)
            for event in httpx2.EventSource(response):
                yield event

    async def close(self) -> None:
        self._http.close()

    @staticmethod
    async def sleep(seconds: float) -> None:
        time.sleep(seconds)


def _unix_transport(server: Server) -> httpx2.BaseTransport | None:
    if server.socket is None:
        return None
    import httpcore2  # imported on use: it is the HTTP library's core

    class ClosingBackend(httpcore2.SyncBackend):
        """Where nobody listens, the library leaves its socket open until it is collected; a probe closes its own."""

        def connect_unix_socket(
            self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
        ) -> httpcore2.NetworkStream:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(timeout)
                try:
                    probe.connect(path)
                except OSError as error:
                    raise httpcore2.ConnectError(str(error)) from error
            return super().connect_unix_socket(path, timeout, socket_options)

    transport = httpx2.HTTPTransport(verify=False)
    transport._pool = httpcore2.ConnectionPool(uds=os.fspath(server.socket), network_backend=ClosingBackend())
    return transport


HttpType = type[AsyncHttp] | type[BlockingHttp]


class ServerConnection:
    """The connection of one client; ``locate`` finds the server before the first request and after a lost one."""

    def __init__(self, locate: Callable[[], Server], timeout: float, http: HttpType) -> None:
        self._locate, self._timeout, self._http_type = locate, timeout, http
        self._http: AsyncHttp | BlockingHttp | None = None

    async def send(self, method: str, path: str, *, repeatable: bool = False, **options: Any) -> httpx2.Response:
        """The response to a request. ``repeatable``: send it again after a lost connection.

        One that changes nothing is sent again where the server has just closed the connection, which it found idle.
        """
        try:
            return await self._send(method, path, **options)
        except NoServerError as error:
            was_open = isinstance(error.__cause__, httpx2.ReadError | httpx2.WriteError | httpx2.RemoteProtocolError)
            if not (repeatable or (method == "GET" and was_open)):
                raise
        return await self._repeat(method, path, **options)

    async def _repeat(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """The response to a request that the server may still be processing: it says that it is busy meanwhile."""
        while True:
            try:
                return await self._send(method, path, **options)
            except ProblemError as error:
                if error.problem.get("type") != "/problems/busy":
                    raise
            await self._http_type.sleep(RETRY_INTERVAL)

    async def _send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        async with self._open() as http:
            response = await http.request(method, f"/api/v1{path}", **options)
        if response.is_error:
            raise rejection(response)
        return response

    async def events(self, path: str, **options: Any) -> AsyncGenerator[StreamEvent, None]:
        async with self._open() as http:
            async for sent in http.events(f"/api/v1{path}", **options):
                data: dict[str, Any] = json.loads(sent.data)
                version = sent.id or str(data.get("version", ""))
                yield StreamEvent(sent.event, data, int(version) if version.isdigit() else None)

    async def close(self) -> None:
        if self._http is not None:
            http, self._http = self._http, None
            await http.close()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[AsyncHttp | BlockingHttp]:
        """Raises NoServerError where no server is found, or the connection is lost."""
        if self._http is None:
            self._server = self._locate()
            self._http = self._http_type(self._server, self._timeout)
        try:
            yield self._http
        except httpx2.TransportError as error:
            await self.close()
            detail = f"The server at {self._server.url} does not answer ({error or type(error).__name__})."
            raise NoServerError(detail) from error
