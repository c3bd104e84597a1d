"""What is checked of every request, and happens to every response, before and after everything else."""

import ipaddress
import socket

import anyio
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rekindle_service.api.problems import SECURITY_HEADERS, ApiError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 compared with, not bound to


class SecurityHeadersMiddleware:
    """Adds ``SECURITY_HEADERS`` to every response, except headers that the response has already."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class ClientDisconnectMiddleware:
    """Ends a stream without an error when its client has disconnected.

    FastAPI closes the pipe of an event stream before it stops the task that writes to it. Where an event waits in the
    pipe at that moment, the writer raises, and the request would be logged as failed with a traceback.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except* anyio.BrokenResourceError:
            pass


class TrustedHostMiddleware:
    """Respond 400 to every request whose ``Host`` does not name this server, before any other check.

    A hostile page can point its own host name at 127.0.0.1 (DNS rebinding), which makes it same-origin with this server
    in the browser's eyes. The ``Host`` header of its requests still holds its name.

    Trusted names are those of loopback, ``host``, the address the server listens on, and ``public_host``, the name
    that a reverse proxy is reached by. A server that listens on all
    addresses also trusts the machine's name and bare IP addresses, which cannot be rebound. The port is ignored, since
    a tunnel has its own.
    """

    def __init__(self, app: ASGIApp, host: str, public_host: str | None = None) -> None:
        self._app = app
        self._any_address = host in _ANY_ADDRESS
        own = socket.gethostname() if self._any_address else f"[{host}]" if ":" in host else host
        self._names = _LOOPBACK | {own.lower()} | ({public_host.lower()} if public_host else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        hosts = [value for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] != "lifespan" and not (len(hosts) == 1 and self._is_trusted(hosts[0].decode("latin-1"))):
            detail = (
                f"the Host header must be given once and name this server: {', '.join(sorted(self._names))}, with "
                "any port; the settings host and public_url allow another name"
            )
            app = ApiError(400, "wrong-host", detail).response()
        await app(scope, receive, send)

    def _is_trusted(self, header: str) -> bool:
        name = host_name(header)
        return name in self._names or (self._any_address and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def host_name(header: str) -> str:
    """The name in a ``Host`` header, in lower case and without the port; an IPv6 address keeps its brackets."""
    name, colon, port = header.rpartition(":")
    if colon and (port.isdecimal() or not port) and (":" not in name or name.endswith("]")):
        return name.lower()
    return header.lower()
