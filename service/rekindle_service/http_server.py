"""uvicorn, made to stop within seconds while event streams are open, to say when it listens, and to bear idlers."""

import asyncio
import json
import resource
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_GRACE_SECONDS = 2
"""How long open requests may go on after a stop is asked for; streams end themselves before."""

_HEAD_SECONDS = 10.0
"""How long a client may take to ask for something: whoever can connect, token or not, takes a file descriptor."""

_UNWANTED_SECONDS = 300.0
"""How long the rest of an upload may come that was refused already: most clients read no answer before its end."""

_MOST_CONNECTIONS = 4096
_MOST_FILES = 65_536  # some programs that jobs start close every number up to the limit, so not any number will do

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_NO_HTTP = json.dumps(
    {
        "type": "/problems/bad-request",
        "title": "Bad Request",
        "status": 400,
        "detail": "the request is not HTTP/1.1 as it should be, or has more than 64 KiB before its body",
    }
).encode()
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b" % (len(_NO_HTTP), _NO_HTTP)
)


class HttpServer(uvicorn.Server):
    """Serves ``app`` on ``listener`` until SIGINT, SIGTERM or ``stop``.

    ``stopping`` is set as soon as a stop is asked for, before uvicorn waits for connections to end: an event stream
    would otherwise keep the server alive for as long as a browser looks.
    """

    def __init__(
        self, app: Any, listener: socket.socket, stopping: threading.Event, on_ready: Callable[[], None]
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
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        super().__init__(config)
        self._listener = listener
        self._stopping = stopping
        self._on_ready = on_ready

    def run_until_stopped(self) -> None:
        self.run(sockets=[self._listener])

    def stop(self) -> None:
        """Ask for the end; from any thread."""
        self._stopping.set()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:  # asked twice: the user does not want to wait
            self.force_exit = True
        self.stop()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """uvicorn's own raises the signal anew at the end, which would end this process before it has cleaned up."""
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
    """Closed where nothing is being answered on it and no whole request comes; one too many is closed at once.

    uvicorn starts no timer before the first answer, and stops that of a later request at its first byte. Its
    ``limit_concurrency`` counts event streams and idlers alike, and then refuses everybody.
    """

    _head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            transport.abort()
        else:
            self._mind_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What no application ever sees is refused in the same form as everything else; uvicorn sends plain text."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def _mind_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        elif self._head_due is None:
            refused = self.cycle is not None and self.cycle.more_body
            seconds = _UNWANTED_SECONDS if refused else _HEAD_SECONDS
            self._head_due = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _forget_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None


def most_connections() -> int:
    """The other half of the files is for the database, for run directories and for what is being read of them."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(_MOST_CONNECTIONS, files // 2)


def raise_file_limit() -> None:
    """Let this process have as many files open as it may; 1024, the usual limit, suit programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
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
