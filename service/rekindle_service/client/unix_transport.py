"""HTTP over a UNIX socket, blocking. Imported on use, since it loads the HTTP library's core."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpcore2
import httpx2


class _Backend(httpcore2.SyncBackend):
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


class UnixTransport(httpx2.HTTPTransport):
    def __init__(self, path: Path) -> None:
        super().__init__(verify=False)
        self._pool = httpcore2.ConnectionPool(uds=os.fspath(path), network_backend=_Backend())
