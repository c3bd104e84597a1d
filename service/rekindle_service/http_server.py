"""uvicorn with what it lacks: a stop within seconds while event streams are open, timeouts for idle clients, and a UNIX
socket for users of this machine.
"""

import asyncio
import errno
import grp
import json
import os
import resource
import signal
import socket
import stat
import struct
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_SHUTDOWN_GRACE = 2
"""Seconds that open requests get after a stop is requested; event streams end before."""

_DATE_INTERVAL = 1.0
"""Seconds between two updates of the header Date, which are all that an idle server does for HTTP."""

_HEADER_TIMEOUT = 10.0
"""Seconds that a client may take to send a request: any connection, with a token or without, costs a descriptor."""

_REJECTED_BODY_TIMEOUT = 300.0
"""Seconds for the rest of an upload that was rejected already: most clients read no answer before its end."""

_MAX_CONNECTIONS = 4096

_ACCEPTED_AT_ONCE = 128
"""Few enough that a new client's request is read before as many others have come as would close its connection."""

_BACKLOG = 2048  # connections that the kernel keeps until they are accepted
_MAX_OPEN_FILES = 65_536  # some programs that jobs start close every number up to the limit, so not any number will do

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
MAX_SOCKET_PATH = 100  # bytes; the kernel takes 107

_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


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
            http=partial(_Connection, {}),  # type: ignore[arg-type]  # what makes one will do
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
    """Closed when no request arrives whole in time.

    uvicorn starts no timer before the first answer, and stops that of a later request at its first byte. Its
    ``limit_concurrency`` counts event streams and idlers alike, and then refuses everybody. Here, where there are too
    many connections, the oldest whose client is to send something is closed: who sends a request always gets in,
    whoever else keeps connections open.
    """

    _header_timer: asyncio.TimerHandle | None = None

    def __init__(self, by_age: dict["_Connection", None], **uvicorns: Any) -> None:
        """``by_age``: the connections of the server, oldest first."""
        super().__init__(**uvicorns)
        self.conn = _OneLength(h11.SERVER)
        self._by_age = by_age

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if (uid := peer_uid(transport.get_extra_info("socket"))) is not None:
            self.app_state = {**self.app_state, "peer_uid": uid}  # of each request on this connection
        self._by_age[self] = None
        if len(self._by_age) > max_connections():
            oldest = next(each for each in self._by_age if each.awaits_client())  # at least this one does
            del self._by_age[oldest]
            oldest.transport.abort()
        if not transport.is_closing():
            self._start_header_timeout()

    def awaits_client(self) -> bool:
        """Whether the client is to send something: a request, or the rest of one."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._start_header_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._by_age.pop(self, None)
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
            is_draining = self.cycle is not None and self.cycle.more_body  # the rest of a body that was rejected
            timeout = _REJECTED_BODY_TIMEOUT if is_draining else _HEADER_TIMEOUT
            self._header_timer = self.loop.call_later(timeout, self.timeout_keep_alive_handler)

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


def listen_unix(path: Path, group: str | None = None) -> socket.socket:
    """A socket at ``path`` that listens, for the user of this process and root, or also for the members of ``group``.

    Replaces a socket that an earlier server has left, and nothing else. Raises OSError, and KeyError for an unknown
    group.
    """
    gid = None if group is None else grp.getgrnam(group).gr_gid
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)  # nobody else connects before the mode is set
    try:
        listener.bind(os.fspath(path))
        if gid is not None:
            os.chown(path, -1, gid)
            path.chmod(0o660)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(umask)
    return listener


def _remove_stale(path: Path) -> None:
    """Precondition: the caller owns the home, so no other server of it listens there."""
    if os.path.lexists(path):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "another file is there", str(path))
        path.unlink()


def peer_uid(connection: socket.socket) -> int | None:
    """The user whose process has connected, as the kernel knows it; None for a connection over the network."""
    if connection.family != socket.AF_UNIX:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
