"""uvicorn with what it lacks: a stop within seconds while event streams are open, and timeouts for idle clients."""

import asyncio
import json
import math
import resource
import signal
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rekindle_service.unix_socket import peer_uid

_SHUTDOWN_GRACE = 2
"""Seconds that open requests get after a stop is requested; event streams end before."""

_DATE_INTERVAL = 1.0
"""Seconds between two updates of the header Date, which are all that an idle server does for HTTP."""

_HEADER_TIMEOUT = 10.0
"""Seconds that a client may take to send a request: any connection, with a token or without, costs a descriptor."""

_REJECTED_BODY_TIMEOUT = 300.0
"""Seconds for the rest of an upload that was rejected already: most clients read no answer before its end."""

_ANONYMOUS_BODY_TIMEOUT = 15.0
_ANONYMOUS_BODY_BYTES = 16 << 20
"""As much of the rest of a rejected body is read of a client that has shown no valid token."""

_MAX_CONNECTIONS = 4096
_ANONYMOUS_SHARE = 4
"""One connection in four may belong to clients that have shown no valid token; the others are reserved."""

_ACCEPTED_AT_ONCE = 128
"""Few enough that a new client's request is read before as many others have come as would close its connection."""

_BACKLOG = 2048  # connections that the kernel keeps until they are accepted
_MAX_OPEN_FILES = 65_536  # some programs that jobs start close every number up to the limit, so not any number will do

_SCOPE_KEY = "rekindle.connection"
"""In the ``state`` of an ASGI scope: the connection of the request, for ``api.middleware.connection``."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_PROBLEM = json.dumps(
    {
        "type": "/problems/bad-request",
        "title": "Bad Request",
        "status": 400,
        "detail": "the request is not HTTP/1.1 as it should be, gives its length both as Content-Length and as "
        "Transfer-Encoding, or has more than 64 KiB before its body",
    }
).encode()
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b" % (len(_PROBLEM), _PROBLEM)
)


class HttpServer(uvicorn.Server):
    """Serves ``app`` on all listeners until SIGINT, SIGTERM or ``stop``.

    ``stopping`` is set as soon as a stop is requested, before uvicorn waits for connections to end: an event stream
    would otherwise keep the server alive as long as a browser is open.
    """

    def __init__(
        self,
        app: Any,
        listener: socket.socket,
        stopping: threading.Event,
        on_ready: Callable[[], None],
        unix_listeners: Sequence[socket.socket] = (),
    ) -> None:
        config = uvicorn.Config(
            app,
            http=partial(_Connection, OrderedDict()),  # type: ignore[arg-type]  # what makes one will do
            backlog=_ACCEPTED_AT_ONCE,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_SHUTDOWN_GRACE,
        )
        super().__init__(config)
        self._listeners = [listener, *unix_listeners]
        self._stopping = stopping
        self._on_ready = on_ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested = asyncio.Event()

    def run_until_stopped(self) -> None:
        self.run(sockets=self._listeners)

    def stop(self) -> None:
        """Request the stop; from any thread."""
        self._stopping.set()
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stop_requested.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        for listener in self._listeners:
            listener.listen(_BACKLOG)
        self._on_ready()

    async def main_loop(self) -> None:
        """uvicorn's own checks ten times a second whether to stop."""
        while not await self.on_tick(0):  # at 0 it updates the header Date
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_INTERVAL):
                    await self._stop_requested.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:  # requested twice: the user does not want to wait
            self.force_exit = True
        self.stop()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """uvicorn's own raises the signal again at the end, which would end this process before it has cleaned up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


class _Connection(H11Protocol):
    """Closed when no request arrives whole in time; a connection beyond the maximum is closed at once.

    uvicorn starts no timer before the first answer, and stops that of a later request at its first byte. Its
    ``limit_concurrency`` counts event streams and idlers alike, and then refuses everybody.

    A new connection is anonymous until the application calls ``authenticated``. Where there are too many anonymous
    ones, the oldest is closed: a client with a token always gets in, whoever else keeps connections open.
    """

    _header_timer: asyncio.TimerHandle | None = None
    _drained = 0  # bytes of a rejected body

    def __init__(self, anonymous: OrderedDict["_Connection", None], app_state: dict[str, Any], **uvicorns: Any) -> None:
        """``anonymous``: those of the server, oldest first."""
        super().__init__(app_state={**app_state, _SCOPE_KEY: self}, **uvicorns)
        self.conn = _OneLength(h11.SERVER)
        self._anonymous = anonymous

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if (uid := peer_uid(transport.get_extra_info("socket"))) is not None:
            self.app_state = {**self.app_state, "peer_uid": uid}  # of each request on this connection
        maximum = max_connections()
        if len(self.connections) > maximum and not self._anonymous:
            transport.abort()
            return
        self._anonymous[self] = None
        if len(self._anonymous) > max(1, maximum // _ANONYMOUS_SHARE) or len(self.connections) > maximum:
            oldest, _ = self._anonymous.popitem(last=False)
            oldest.transport.abort()
        if not transport.is_closing():
            self._start_header_timeout()

    def authenticated(self) -> None:
        """A request of this connection has shown a valid token."""
        self._anonymous.pop(self, None)

    def abort(self) -> None:
        """Let the client see that its response is incomplete."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._drained = self._drained + len(data) if self._is_draining() else 0
        if self._drained > _ANONYMOUS_BODY_BYTES and self in self._anonymous:
            self.transport.abort()
            return
        super().data_received(data)
        self._start_header_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._anonymous.pop(self, None)
        self._cancel_header_timeout()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """A problem document, as for any other error; uvicorn sends plain text."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def _is_draining(self) -> bool:
        """Whether the rest of a body follows whose request has its response already."""
        return self.cycle is not None and self.cycle.response_complete and self.cycle.more_body

    def _start_header_timeout(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_header_timeout()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self._timeout(), self.timeout_keep_alive_handler)

    def _timeout(self) -> float:
        if not self._is_draining():
            return _HEADER_TIMEOUT
        return min(_REJECTED_BODY_TIMEOUT, _ANONYMOUS_BODY_TIMEOUT if self in self._anonymous else math.inf)

    def _cancel_header_timeout(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class _OneLength(h11.Connection):
    """Refuses a body of two lengths: a proxy that takes the other one sees the next request elsewhere than this server.

    h11 itself refuses two values of Content-Length, and prefers Transfer-Encoding where both are given.
    """

    def next_event(self) -> Any:
        """Raises RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        return event


def max_connections() -> int:
    """The other half of the files is for the database, for run directories and for what is being read of them."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(_MAX_CONNECTIONS, files // 2)


def raise_file_limit() -> None:
    """Let this process have as many files open as it may; 1024, the usual limit, suit programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to ``host`` and ``port`` (0: any free one) and listens. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """The address of a listening socket as a browser takes it; a wildcard address is reached by loopback."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 compared with, not bound to
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
