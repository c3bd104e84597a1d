"""uvicorn, made to stop within seconds while event streams are open, and to say when it listens."""

import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

_GRACE_SECONDS = 2
"""How long open requests may go on after a stop is asked for; streams end themselves before."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
