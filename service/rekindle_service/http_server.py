"""uvicorn with what it lacks: a stop within seconds while event streams are open, and timeouts for idle clients."""

import asyncio
import json
import resource
import signal
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rekindle_service.unix_socket import peer_uid

_SHUTDOWN_GRACE = 2
"""Seconds that open requests get after a stop is requested; event streams end before."""

_HEADER_TIMEOUT = 10.0
"""Seconds that a client may take to send a request: any connection, with a token or without, costs a descriptor."""

_REJECTED_BODY_TIMEOUT = 300.0
"""Seconds for the rest of an upload that was rejected already: most clients read no answer before its end."""

_MAX_CONNECTIONS = 4096
_MAX_OPEN_FILES = 65_536  # some programs that jobs start close every number up to the limit, so not any number will do

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_PROBLEM = json.dumps(
    {
        "type": "/problems/bad-request",
        "title": "Bad Request",
        "status": 400,
        "detail": "the request is not HTTP/1.1 as it should be, or has more than 64 KiB before its body",
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
            http=_Connection,
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

    def run_until_stopped(self) -> None:
        self.run(sockets=self._listeners)

    def stop(self) -> None:
        """Request the stop; from any thread."""
        self._stopping.set()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

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
    """

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if (uid := peer_uid(transport.get_extra_info("socket"))) is not None:
            self.app_state = {**self.app_state, "peer_uid": uid}  # of each request on this connection
        if len(self.connections) > max_connections():
            transport.abort()
        else:
            self._start_header_timeout()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._start_header_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_header_timeout()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """A problem document, as for any other error; uvicorn sends plain text."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def _start_header_timeout(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_header_timeout()
        elif self._header_timer is None:
            refused = self.cycle is not None and self.cycle.more_body
            seconds = _REJECTED_BODY_TIMEOUT if refused else _HEADER_TIMEOUT
            self._header_timer = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _cancel_header_timeout(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


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
